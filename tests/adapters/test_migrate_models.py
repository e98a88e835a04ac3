"""Adapters of real architectures follow the packs that come with remap."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path

import peft
import pytest
import torch
import transformers
from adapters import bench, models
from adapters.test_migrate_packs import commutes, lora
from safetensors.torch import load_file, save_file

import remap
from remap.packs import load


@pytest.mark.parametrize("saved", [False, True], ids=["lora", "modules_to_save"])
def test_a_head_of_transformers_4_is_not_lost(tmp_path: Path, saved: bool) -> None:
    """transformers 5 calls GPT-NeoX's ``embed_out`` ``lm_head``. PEFT loads what it finds."""
    config = peft.LoraConfig(
        r=4,
        lora_alpha=8,
        target_modules=["query_key_value"] if saved else ["query_key_value", "lm_head"],
        modules_to_save=["lm_head"] if saved else None,
    )
    before = bench.made(models.neox(), config, tmp_path / "new")
    old = _as_of_transformers_4(tmp_path / "new", tmp_path / "old")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        today = peft.PeftModel.from_pretrained(models.neox(), old).eval()
    assert (models.logits(today) - models.logits(before)).abs().max() > 1e-3  # the head is lost
    bench.migrate(old, tmp_path / "migrated", [load("transformers/gptneox-4-to-5")])
    after = bench.on(models.neox(), tmp_path / "migrated")
    assert torch.equal(models.logits(after), models.logits(before))


def _as_of_transformers_4(source: Path, folder: Path) -> Path:
    """The adapter as it was written when the head was embed_out."""
    folder.mkdir()
    tensors = load_file(source / "adapter_model.safetensors")
    save_file(
        {k.replace("lm_head", "embed_out"): t for k, t in tensors.items()},
        folder / "adapter_model.safetensors",
    )
    text = (source / "adapter_config.json").read_text()
    (folder / "adapter_config.json").write_text(text.replace("lm_head", "embed_out"))
    return folder


def mixtral() -> transformers.MixtralForCausalLM:
    config = transformers.MixtralConfig(
        vocab_size=96,
        hidden_size=32,
        intermediate_size=24,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        num_local_experts=3,
        num_experts_per_tok=2,
        tie_word_embeddings=False,
    )
    model = models.randomised(transformers.MixtralForCausalLM(config))
    assert isinstance(model, transformers.MixtralForCausalLM)
    return model


@pytest.fixture(scope="module")
def experts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Mixtral in the names of transformers 5, ``new``, and 4, ``old``; a LoRA of 4 on it."""
    root = tmp_path_factory.mktemp("mixtral")
    models.saved(mixtral(), root / "new")
    remap.convert(root / "new", root / "old", ["transformers/mixtral-4-to-5"], inverse=True)
    shapes = {}
    for i in range(2):
        shapes |= {
            f"model.layers.{i}.self_attn.{m}": (32 if m == "q_proj" else 16, 32) for m in ("q_proj", "v_proj")
        }
        for e in range(3):
            expert = f"model.layers.{i}.block_sparse_moe.experts.{e}"
            shapes |= {f"{expert}.w1": (24, 32), f"{expert}.w2": (32, 24), f"{expert}.w3": (24, 32)}
    lora(root / "lora", shapes, target_modules=["w1", "w2", "w3", "q_proj", "v_proj"], task_type="CAUSAL_LM")
    return root


def test_experts_are_stacked_as_peft_stacks_them(experts: Path, tmp_path: Path) -> None:
    config = bench.migrate(
        experts / "lora", tmp_path / "migrated", [load("transformers/mixtral-4-to-5")], experts / "old"
    )
    assert config["target_parameters"] == ["experts.down_proj", "experts.gate_up_proj"]
    assert config["target_modules"] == ["q_proj", "v_proj"]
    assert (config["rank_pattern"], config["alpha_pattern"]) == ({"gate_up_proj": 4}, {"gate_up_proj": 6})
    mine = bench.on(mixtral(), tmp_path / "migrated")
    theirs = bench.on(mixtral(), experts / "lora")  # PEFT knows this one architecture
    assert mine.peft_config["default"].target_parameters == {
        "experts.down_proj",
        "experts.gate_up_proj",
    }
    torch.testing.assert_close(models.logits(mine), models.logits(theirs))
    assert (models.logits(mine) - models.logits(mixtral())).abs().max() > 1e-2


def test_experts_there_and_back(experts: Path, tmp_path: Path) -> None:
    """Gate and up had ranks beside each other; each gets its own back."""
    migrated = commutes(tmp_path / "there", "transformers/mixtral-4-to-5", experts / "old", experts / "lora")
    back = commutes(tmp_path / "back", "transformers/mixtral-4-to-5", experts / "new", migrated, inverse=True)
    config = json.loads((back / "adapter_config.json").read_text())
    assert config["target_parameters"] is None
    assert config["target_modules"] == ["q_proj", "v_proj", "w1", "w2", "w3"]
    before, after = (load_file(f / "adapter_model.safetensors") for f in (experts / "lora", back))
    assert before.keys() == after.keys()
    assert [k for k, t in before.items() if not torch.equal(t, after[k])] == []


@pytest.mark.parametrize(
    "config",
    [
        peft.LoraConfig(r=4, lora_alpha=8, target_modules=["c_attn", "c_proj"], fan_in_fan_out=True),
        peft.LoraConfig(r=4, target_modules=["c_attn", "c_fc"], fan_in_fan_out=True, use_dora=True),
        peft.IA3Config(target_modules=["c_attn", "c_fc"], feedforward_modules=["c_fc"], fan_in_fan_out=True),
    ],
    ids=["lora", "dora", "ia3"],
)
def test_conv1d_becomes_linear(tmp_path: Path, config: peft.PeftConfig) -> None:
    """GPT-2's weights lie [in, out]; c_proj of the attention is square, so only the configuration tells."""
    settings = transformers.GPT2Config(vocab_size=96, n_embd=32, n_layer=2, n_head=4, n_positions=32)
    gpt2: Callable[[], torch.nn.Module] = lambda: models.randomised(transformers.GPT2LMHeadModel(settings))  # noqa: E731
    base = models.saved(gpt2(), tmp_path / "base", "lm_head.weight")
    merged = bench.quietly(bench.made(gpt2(), config, tmp_path / "lora").merge_and_unload).state_dict()
    migrated = commutes(tmp_path, "gpt2/conv1d-to-linear", base, tmp_path / "lora")
    found = load_file(tmp_path / "found/model.safetensors")
    for key, tensor in found.items():
        wanted = merged[key].T if ".h." in key and tensor.dim() == 2 else merged[key]
        torch.testing.assert_close(tensor, wanted, rtol=1e-5, atol=1e-6)
    said = json.loads((migrated / "adapter_config.json").read_text())
    assert said["fan_in_fan_out"] is False


LLAMA = "model.layers.{}.self_attn.{}_proj"


@pytest.mark.parametrize("changed", ["qkv", "qv"])
def test_grouped_queries(tmp_path: Path, changed: str) -> None:
    """Megatron's fused projection: each of 2 key-value heads beside its 2 query heads. There and back."""
    base = checkpoint_of_llama(tmp_path / "base")
    sizes = {"q": 32, "k": 16, "v": 16}
    modules = {LLAMA.format(i, p): (sizes[p], 32) for i in range(2) for p in changed}
    adapter = lora(tmp_path / "lora", modules, lora_alpha=8)
    fused = commutes(tmp_path / "there", "megatron/llama-to-hf", base, adapter, inverse=True)
    back = commutes(tmp_path / "back", "megatron/llama-to-hf", tmp_path / "there/converted", fused)
    before, after = (load_file(f / "adapter_model.safetensors") for f in (adapter, back))
    assert before.keys() == after.keys()
    assert [k for k, t in before.items() if not torch.equal(t, after[k])] == []
    config = json.loads((back / "adapter_config.json").read_text())
    assert (config["r"], config["lora_alpha"], config["rank_pattern"]) == (2, 8, {})


def checkpoint_of_llama(folder: Path) -> Path:
    config = transformers.LlamaConfig(
        vocab_size=96,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        tie_word_embeddings=False,
    )
    return models.saved(models.randomised(transformers.LlamaForCausalLM(config)), folder)


def test_twelve_layers_and_more(tmp_path: Path) -> None:
    """Layer 1 is not layer 11, in target_modules, in rank_pattern, in alpha_pattern."""
    config = peft.LoraConfig(
        r=4,
        lora_alpha=8,
        target_modules=r".*layers\.(1|11|12)\.attention\.query_key_value|.*\.2\.attention\.dense",
        rank_pattern={r"layers\.1\.attention\.query_key_value": 2},
        alpha_pattern={r"layers\.11\.attention\.query_key_value": 5},
    )
    base = models.saved(models.neox(13), tmp_path / "base")
    before = bench.made(models.neox(13), config, tmp_path / "old")
    remap_pack = tmp_path / "split.yaml"
    remap_pack.write_text(models.SPLIT)
    remap.convert(base, tmp_path / "split", [remap_pack])
    said = bench.migrate(tmp_path / "old", tmp_path / "new", [bench.pack(models.SPLIT)], base)
    after = bench.on(models.split(tmp_path / "split", 13), tmp_path / "new")
    torch.testing.assert_close(models.logits(after), models.logits(before))
    assert said["target_modules"] == sorted(
        ["2.attention.dense", *(f"{i}.attention.{m}" for i in (1, 11, 12) for m in "qkv")]
    )
    assert said["rank_pattern"] == {f"1.attention.{m}": 2 for m in "qkv"}
    assert said["alpha_pattern"] == {f"11.attention.{m}": 5 for m in "qkv"}


def test_before_training_every_part_gets_factors(tmp_path: Path) -> None:
    """B is zero then, and is to be trained."""
    base = models.saved(models.neox(), tmp_path / "base")
    model = bench.quietly(lambda: peft.get_peft_model(models.neox(), bench.METHODS["lora"]))
    bench.quietly(lambda: model.save_pretrained(tmp_path / "old"))
    config = bench.migrate(tmp_path / "old", tmp_path / "new", [bench.pack(models.SPLIT)], base)
    assert (config["target_modules"], config["r"]) == (["k", "q", "v"], 4)
