"""Every adapter of the corpus follows a rename and is merged; PEFT judges both. The heads that transformers 5
renamed say again what was recorded under transformers 4.
"""

from __future__ import annotations

from pathlib import Path

import peft
import pytest
import torch
import transformers
from adapters import bench, models
from safetensors.torch import load_file

import remap
from remap.adapters import read
from remap.adapters.merging.merge import Weighed, merged
from remap.adapters.write import write_model
from remap.errors import UsageError
from remap.output import How
from remap.packs import load

OPT = """
remap: 1
pack: test/opt
version: 1.0.0
title: OPT under other names
tables:
  modules:
    self_attn.q_proj: self_attn.query
    self_attn.k_proj: self_attn.key
    self_attn.v_proj: self_attn.value
    self_attn.out_proj: self_attn.out
    self_attn_layer_norm: self_attn_layer_norm
    final_layer_norm: final_layer_norm
    fc1: up
    fc2: down
stages:
  - rules:
      - {id: layers, from: "model.decoder.layers.{i:int}.{m:@modules}.{p}",
         to: "model.decoder.blocks.{i}.{m}.{p}"}
      - {id: words, from: "model.decoder.embed_tokens.weight", to: "model.decoder.words.weight",
         optional: true}
      - {id: head, from: "lm_head.weight", to: "output.weight", optional: true}
      - keep: "**"
        optional: true
"""
UNMERGED = {"boft", "oft", "prefix", "prefix_proj", "prompt", "ptuning"}
RENAMED = {"neox": models.SIDEWAYS, "opt": OPT}


def neox() -> torch.nn.Module:
    config = transformers.GPTNeoXConfig(
        **{**models.CONFIG, "vocab_size": 128, "max_position_embeddings": 64, "tie_word_embeddings": False}
    )
    return models.randomised(transformers.GPTNeoXForCausalLM(config))


def opt() -> torch.nn.Module:
    config = transformers.OPTConfig(
        vocab_size=128,
        hidden_size=32,
        num_hidden_layers=2,
        ffn_dim=64,
        num_attention_heads=4,
        max_position_embeddings=64,
        word_embed_proj_dim=32,
        dropout=0.0,
        attention_dropout=0.0,
        tie_word_embeddings=False,
    )
    return models.randomised(transformers.OPTForCausalLM(config))


def sideways(family: str, folder: Path) -> torch.nn.Module:
    if family == "neox":
        return models.sideways(folder, neox())
    model = opt()
    models.moved(model.model.decoder, "embed_tokens", "words")
    models.moved(model, "lm_head", "output")
    for block in model.model.decoder.layers:
        for old, new in (("q_proj", "query"), ("k_proj", "key"), ("v_proj", "value"), ("out_proj", "out")):
            models.moved(block.self_attn, old, new)
        models.moved(block, "fc1", "up")
        models.moved(block, "fc2", "down")
    models.moved(model.model.decoder, "layers", "blocks")
    return models.loaded(model, folder)


MODELS = {"neox": neox, "opt": opt}


def folders(data: Path, family: str) -> list[Path]:
    found = sorted(f.parent for f in (data / "adapters" / family).rglob("adapter_config.json"))
    assert len(found) > 20
    return found


@pytest.mark.parametrize("family", MODELS)
def test_all_follow_a_rename(data: Path, tmp_path: Path, family: str) -> None:
    base = models.saved(MODELS[family](), tmp_path / "base")
    (tmp_path / "pack.yaml").write_text(RENAMED[family])
    remap.convert(base, tmp_path / "moved", [tmp_path / "pack.yaml"])
    for folder in folders(data, family):
        before = models.logits(bench.on(MODELS[family](), folder))
        out = tmp_path / "new" / folder.name
        bench.migrate(folder, out, [bench.pack(RENAMED[family])], base)
        after = bench.on(sideways(family, tmp_path / "moved"), out)
        torch.testing.assert_close(models.logits(after), before, msg=folder.name)


@pytest.mark.parametrize("family", MODELS)
def test_all_are_merged_as_peft_merges(data: Path, tmp_path: Path, family: str) -> None:
    base = models.saved(MODELS[family](), tmp_path / "base")
    catalog = remap.open(base).catalog
    for folder in folders(data, family):
        if folder.name in UNMERGED:
            with pytest.raises(UsageError, match="can't be merged"):
                merged(catalog, [Weighed(read(folder))])
            continue
        wanted = bench.quietly(bench.on(MODELS[family](), folder).merge_and_unload).state_dict()
        write_model(merged(catalog, [Weighed(read(folder))]), tmp_path / folder.name, How())
        found = load_file(tmp_path / folder.name / "model.safetensors")
        assert found.keys() == wanted.keys()
        for key, tensor in wanted.items():
            torch.testing.assert_close(found[key], tensor, rtol=2e-6, atol=2e-7, msg=f"{folder.name}: {key}")


@pytest.mark.parametrize("name", ["neox_lora_head", "neox_mts"])
def test_what_was_recorded_under_transformers_4(data: Path, tmp_path: Path, name: str) -> None:
    folder = data / "adapters/across_versions" / name
    recorded = torch.load(folder / "logits.pt", weights_only=True)

    def says(adapter: Path) -> torch.Tensor:
        model = transformers.AutoModelForCausalLM.from_pretrained(folder / "base")
        model = bench.quietly(lambda: peft.PeftModel.from_pretrained(model, adapter)).eval()
        with torch.no_grad():
            return model(torch.arange(8)[None]).logits

    if name == "neox_lora_head":  # the other's head was not trained
        assert (says(folder / "adapter") - recorded).abs().max() > 1e-3
    bench.migrate(
        folder / "adapter", tmp_path / "new", [load("transformers/gptneox-4-to-5")], folder / "base"
    )
    torch.testing.assert_close(says(tmp_path / "new"), recorded)
