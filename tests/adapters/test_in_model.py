"""Models that PEFT wrapped: their adapters taken out, and put in. PEFT's own files are the right value."""

from __future__ import annotations

from pathlib import Path

import peft
import pytest
import torch
from adapters import bench, models
from safetensors.torch import load_file, save_file

import remap
from remap.adapters import extract, graft
from remap.errors import UsageError

METHODS = [m for m in bench.METHODS if m not in ("prompt", "prefix")]
TOLD: dict[str, dict[str, object]] = {
    "patterns": {"alpha_pattern": {"mlp.dense_h_to_4h": 3}},
    "rslora": {"use_rslora": True},
    "bias-all": {"bias": "all"},
    "bias-lora-only": {"bias": "lora_only"},
    "bias-of-b": {"lora_bias": True},
    "tokens": {"trainable_token_indices": {"embed_in": [2, 5, 7]}},
    "adalora": {"lora_alpha": 8},
    "loha": {"alpha": 8},
    "lokr": {"r": 4, "alpha": 8, "decompose_factor": -1},
    "lokr-patterns": {
        "r": 4,
        "alpha": 8,
        "decompose_factor": -1,
        "rank_pattern": {"layers.1.attention.query_key_value": 2},
        "alpha_pattern": {"0.attention.dense": 3, "layers.1.attention.dense": 5},
    },
}
"""What only the one who trained it knows; LoRA's alpha beside."""


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return models.saved(models.neox(), tmp_path_factory.mktemp("base") / "base")


def wrapped(method: str, folder: Path) -> tuple[torch.nn.Module, Path]:
    """A model with an adapter, which PEFT saved in ``folder``, and its whole state dict in a file."""
    model = bench.made(models.neox(), bench.METHODS[method], folder)
    file = folder.parent / "wrapped.safetensors"
    save_file({k: v.clone() for k, v in model.state_dict().items()}, file)
    return model, file


@pytest.mark.parametrize("method", METHODS)
def test_out_of_the_model_comes_what_peft_saves_and_onto_a_base_the_model(
    base: Path, tmp_path: Path, method: str
) -> None:
    model, file = wrapped(method, tmp_path / "saved")
    extract(file, tmp_path / "out", config=tmp_path / "saved" / "adapter_config.json")
    assert remap.diff(tmp_path / "out", tmp_path / "saved") == []

    lora = {"lora_alpha": 8} if "lora_alpha" in bench.METHODS[method].to_dict() else {}
    extract(file, tmp_path / "rebuilt", settings={**lora, **TOLD.get(method, {})})
    again = bench.on(models.neox(), tmp_path / "rebuilt")
    torch.testing.assert_close(models.logits(again), models.logits(model))

    graft(base, tmp_path / "saved", tmp_path / "model.safetensors")
    found = load_file(tmp_path / "model.safetensors")
    state = model.state_dict()
    assert found.keys() == state.keys()
    assert all(torch.equal(found[k], v) for k, v in state.items())
    extract(file, tmp_path / "bare.safetensors", part="base")
    trained = {"bias-all", "bias-lora-only"}  # those biases were changed in their place
    assert method in trained or remap.diff(tmp_path / "bare.safetensors", base) == []


def test_a_prompt_is_peft_s_own_to_load(base: Path, tmp_path: Path) -> None:
    """The model holds the embedding, PEFT's file what it makes of it; without a network they are one."""
    _, file = wrapped("prompt", tmp_path / "saved")
    extract(file, tmp_path / "out", config=tmp_path / "saved" / "adapter_config.json")
    assert remap.diff(tmp_path / "out", tmp_path / "saved") == []
    with pytest.raises(UsageError, match="changes no weight"):
        graft(base, tmp_path / "saved", tmp_path / "model")


def test_one_of_two_adapters(base: Path, tmp_path: Path) -> None:
    model = bench.made(models.neox(), bench.METHODS["lora"], tmp_path / "saved")
    model.add_adapter("other", peft.LoraConfig(r=2, target_modules=["dense"]))
    bench.quietly(lambda: model.save_pretrained(tmp_path / "both"))
    file = tmp_path / "wrapped.safetensors"
    save_file({k: v.clone() for k, v in model.state_dict().items()}, file)
    with pytest.raises(UsageError, match="2 adapters are in it") as refused:
        extract(file, tmp_path / "out")
    assert set(refused.value.problems) == {"default", "other"}
    extract(file, tmp_path / "out", name="other", settings={"lora_alpha": 8})
    assert remap.diff(tmp_path / "out", tmp_path / "both" / "other") == []


def test_what_was_trained_in_full_is_found_by_the_base(base: Path, tmp_path: Path) -> None:
    """Not a LoRA leaf, and still the adapter's: without it the reloaded model has the base's head."""
    model, file = wrapped("lora", tmp_path / "saved")
    state = load_file(file)
    state["base_model.model.lm_head.weight"] += 1
    save_file(state, file)
    extract(file, tmp_path / "out", base=base, settings={"lora_alpha": 8})
    with torch.no_grad():
        model.base_model.model.lm_head.weight.add_(1)
    again = bench.on(models.neox(), tmp_path / "out")
    torch.testing.assert_close(models.logits(again), models.logits(model))


def test_another_base_is_found_out_by_its_values(tmp_path: Path) -> None:
    _, file = wrapped("lora", tmp_path / "saved")
    other = models.saved(models.neox(seed=5), tmp_path / "other")
    with pytest.raises(UsageError, match="not the base that it was trained on"):
        extract(file, tmp_path / "out", base=other, settings={"lora_alpha": 8})


def test_what_shapes_don_t_tell_is_named(tmp_path: Path) -> None:
    _, file = wrapped("lokr", tmp_path / "saved")
    with pytest.raises(UsageError, match="r and alpha and decompose_factor") as refused:
        extract(file, tmp_path / "out")
    assert "--set r=... --set alpha=..." in str(refused.value.remedy)
    more = {"r": 4, "alpha": 8, "decompose_factor": -1}
    with pytest.raises(UsageError, match="one file has no place"):
        extract(file, tmp_path / "out.safetensors", settings=more)


class Experts(torch.nn.Module):
    """Two bare parameters; PEFT wraps the module once for each."""

    def __init__(self) -> None:
        super().__init__()
        self.gate_up_proj = torch.nn.Parameter(torch.rand(3, 8, 4))
        self.down_proj = torch.nn.Parameter(torch.rand(3, 4, 4))


def test_bare_parameters_lie_behind_a_wrapper_each(tmp_path: Path) -> None:
    net = torch.nn.ModuleDict({"experts": Experts()})
    save_file(net.state_dict(), tmp_path / "base.safetensors")
    config = peft.LoraConfig(
        r=2, target_modules=[], target_parameters=["experts.gate_up_proj", "experts.down_proj"]
    )
    state = bench.made(net, config, tmp_path / "saved").state_dict()
    save_file({k: v.clone() for k, v in state.items()}, tmp_path / "wrapped.safetensors")
    graft(tmp_path / "base.safetensors", tmp_path / "saved", tmp_path / "model.safetensors")
    assert remap.diff(tmp_path / "model.safetensors", tmp_path / "wrapped.safetensors") == []
    extract(tmp_path / "wrapped.safetensors", tmp_path / "bare.safetensors", part="base")
    assert remap.diff(tmp_path / "bare.safetensors", tmp_path / "base.safetensors") == []
    with pytest.raises(UsageError, match="don't tell which parameters"):
        extract(tmp_path / "wrapped.safetensors", tmp_path / "out", settings={"lora_alpha": 8})
    extract(tmp_path / "wrapped.safetensors", tmp_path / "out", config=tmp_path / "saved/adapter_config.json")
    assert remap.diff(tmp_path / "out", tmp_path / "saved") == []


def test_what_nobody_knows_beside_an_adapter_is_not_left_out(tmp_path: Path) -> None:
    front = "base_model.model.q"
    keys = ["lora_A.default.weight", "lora_B.default.weight", "base_layer.weight", "lora_Z.default.weight"]
    save_file({f"{front}.{k}": torch.ones(2, 2) for k in keys}, tmp_path / "wrapped.safetensors")
    for part in ("adapter", "base"):
        with pytest.raises(UsageError) as refused:
            extract(tmp_path / "wrapped.safetensors", tmp_path / "out", part=part)
        assert refused.value.problems == (f"{front}.lora_Z.default.weight",)


METHODS_OF_PARTS: dict[str, peft.PeftConfig] = {
    "vblora": peft.VBLoRAConfig(r=4, target_modules=["dense"], num_vectors=8, vector_length=8),
    "delora": peft.DeloraConfig(r=4, target_modules=["dense"]),
    "glora": peft.GloraConfig(r=4, target_modules=["dense"]),
    "psoft": peft.PsoftConfig(r=4, target_modules=["dense"]),
}
"""Methods with tensors beside their factors, which all modules share, or which hold several."""


@pytest.mark.parametrize("method", METHODS_OF_PARTS)
def test_tensors_beside_the_factors_are_not_lost(base: Path, tmp_path: Path, method: str) -> None:
    model = bench.made(models.neox(), METHODS_OF_PARTS[method], tmp_path / "saved")
    save_file({k: v.clone() for k, v in model.state_dict().items()}, tmp_path / "wrapped.safetensors")
    extract(tmp_path / "wrapped.safetensors", tmp_path / "out", config=tmp_path / "saved/adapter_config.json")
    assert remap.diff(tmp_path / "out", tmp_path / "saved") == []
    graft(base, tmp_path / "saved", tmp_path / "model.safetensors")
    assert remap.diff(tmp_path / "model.safetensors", tmp_path / "wrapped.safetensors") == []


def test_shira_s_indices_are_in_no_state_dict(base: Path, tmp_path: Path) -> None:
    model = bench.made(models.neox(), peft.ShiraConfig(r=4, target_modules=["dense"]), tmp_path / "saved")
    save_file({k: v.clone() for k, v in model.state_dict().items()}, tmp_path / "wrapped.safetensors")
    with pytest.raises(UsageError, match="has not the indices"):
        extract(tmp_path / "wrapped.safetensors", tmp_path / "out")
    with pytest.raises(UsageError, match="no place for SHiRA's indices"):
        graft(base, tmp_path / "saved", tmp_path / "model")


def test_a_base_that_has_some_of_the_modules_is_told_the_pack_for_the_others(tmp_path: Path) -> None:
    """transformers 5 writes GPT-NeoX's head under the name that transformers 4 gave it."""
    state = models.neox().state_dict()
    head = state.pop("lm_head.weight")
    save_file({**state, "embed_out.weight": head}, tmp_path / "base.safetensors")
    bench.made(models.neox(), bench.METHODS["saved"], tmp_path / "saved")
    with pytest.raises(UsageError, match="lacks 1 of the adapter's 4 modules") as refused:
        graft(tmp_path / "base.safetensors", tmp_path / "saved", tmp_path / "model")
    assert "transformers/gptneox-4-to-5 gives 1 of them" in refused.value.remedy
