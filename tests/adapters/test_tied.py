"""Models whose output head is the embedding, which their files have once: adapters change either, or both."""

from __future__ import annotations

import json
from pathlib import Path

import peft
import pytest
import torch
import transformers
from adapters import bench, models
from safetensors.torch import load_file, save_file

import remap
from remap.adapters import graft, merge, migrate
from remap.errors import UsageError

HEAD, EMBEDDING = "lm_head.weight", "transformer.wte.weight"


def gpt2() -> torch.nn.Module:
    settings = transformers.GPT2Config(
        vocab_size=96,
        n_embd=32,
        n_layer=2,
        n_head=4,
        n_positions=32,
        bos_token_id=None,
        eos_token_id=None,
        architectures=["GPT2LMHeadModel"],
    )
    return models.randomised(transformers.GPT2LMHeadModel(settings))


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As transformers writes it: without a head."""
    folder = models.saved(gpt2(), tmp_path_factory.mktemp("tied") / "base", HEAD)
    assert json.loads((folder / "config.json").read_text())["tie_word_embeddings"] is True
    return folder


@pytest.mark.parametrize("saved", [["lm_head"], ["wte"], ["lm_head", "wte"]], ids=str)
def test_what_was_trained_apart_is_written_apart(base: Path, tmp_path: Path, saved: list[str]) -> None:
    """PEFT copies modules to save: in its merged model head and embedding are two."""
    config = peft.LoraConfig(r=4, target_modules=["c_attn"], modules_to_save=saved)
    model = bench.made(gpt2(), config, tmp_path / "adapter")
    before = models.logits(model)
    wanted = bench.quietly(model.merge_and_unload).state_dict()
    _, plan = merge(base, [tmp_path / "adapter"], tmp_path / "merged")
    found = load_file(tmp_path / "merged/model.safetensors")
    for key in (HEAD, EMBEDDING):
        assert torch.equal(found[key], wanted[key])
    assert any("are one in the base, and two from here on" in note for note in plan.notes)
    again = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "merged")
    assert again.config.tie_word_embeddings is False
    torch.testing.assert_close(models.logits(again), before)


@pytest.mark.parametrize("target", ["lm_head", "wte"])
def test_what_is_changed_in_its_place_changes_both(base: Path, tmp_path: Path, target: str) -> None:
    """As PEFT merges: a note says so."""
    config = peft.LoraConfig(r=4, target_modules=["c_attn", target])
    wanted = bench.quietly(bench.made(gpt2(), config, tmp_path / "adapter").merge_and_unload).state_dict()
    _, plan = merge(base, [tmp_path / "adapter"], tmp_path / "merged")
    found = load_file(tmp_path / "merged/model.safetensors")
    assert HEAD not in found
    torch.testing.assert_close(found[EMBEDDING], wanted[EMBEDDING], rtol=1e-5, atol=1e-6)
    assert plan.notes == (
        (f"{EMBEDDING} is tied to {HEAD}, which is changed: it changes, too",)
        if target == "lm_head"
        else (f"{EMBEDDING} is the output head, too, so both change; in PEFT's model the head does not",)
    )


def test_two_changes_of_one_tensor_are_refused(base: Path, tmp_path: Path) -> None:
    config = peft.LoraConfig(r=4, target_modules=["lm_head", "wte"])
    bench.made(gpt2(), config, tmp_path / "adapter")
    with pytest.raises(UsageError, match="would become two"):
        merge(base, [tmp_path / "adapter"], tmp_path / "merged")


def test_a_head_of_unknown_name_is_asked_for(base: Path, tmp_path: Path) -> None:
    config = peft.LoraConfig(r=4, target_modules=["c_attn"], modules_to_save=["wte"])
    bench.made(gpt2(), config, tmp_path / "adapter")
    nameless = tmp_path / "base"
    nameless.mkdir()
    save_file(load_file(base / "model.safetensors"), nameless / "model.safetensors")
    said = json.loads((base / "config.json").read_text())
    (nameless / "config.json").write_text(json.dumps({**said, "architectures": None}))
    with pytest.raises(UsageError, match="what the head is to be called is not known"):
        merge(nameless, [tmp_path / "adapter"], tmp_path / "merged")


def test_it_is_there_for_graft_migrate_and_audit(base: Path, tmp_path: Path) -> None:
    config = peft.LoraConfig(r=4, target_modules=["c_attn"], modules_to_save=["lm_head"])
    model = bench.made(gpt2(), config, tmp_path / "adapter")
    graft(base, tmp_path / "adapter", tmp_path / "model.safetensors")
    found, state = load_file(tmp_path / "model.safetensors"), model.state_dict()
    assert found.keys() == state.keys()
    assert all(torch.equal(found[k], v) for k, v in state.items())
    report = remap.audit(tmp_path / "adapter", base, policy="lora")
    assert report.passed, report.findings
    migrate(tmp_path / "adapter", tmp_path / "new", rules="gpt2/conv1d-to-linear", base=base)
    said = json.loads((tmp_path / "new/adapter_config.json").read_text())
    assert said["modules_to_save"] == ["lm_head"]


def test_a_model_that_is_not_tied_lacks_its_head(base: Path, tmp_path: Path) -> None:
    """Files without a head, and a configuration that says it is no embedding: a shard is missing."""
    config = peft.LoraConfig(r=4, target_modules=["c_attn", "lm_head"])
    bench.made(gpt2(), config, tmp_path / "adapter")
    untied = tmp_path / "base"
    untied.mkdir()
    save_file(load_file(base / "model.safetensors"), untied / "model.safetensors")
    said = json.loads((base / "config.json").read_text())
    (untied / "config.json").write_text(json.dumps({**said, "tie_word_embeddings": False}))
    with pytest.raises(UsageError, match="1 of 3 tensors") as refused:
        merge(untied, [tmp_path / "adapter"], tmp_path / "merged")
    assert refused.value.problems == (HEAD,)
    assert "conv1d-to-linear" not in refused.value.remedy  # it makes none of them fit
