"""Merged weights are those of PEFT's ``merge_and_unload``."""

from __future__ import annotations

import json
from pathlib import Path

import peft
import pytest
import torch
from adapters import bench, models
from safetensors.torch import load_file, save_file

import remap
from remap.adapters import merge as write_merged
from remap.adapters import read
from remap.adapters.merging.merge import Weighed, merged, taken_out
from remap.adapters.write import write_model
from remap.errors import UsageError
from remap.output import How

MERGED = [m for m in bench.METHODS if m not in ("oft", "boft", "prompt", "prefix")]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return models.saved(models.neox(), tmp_path_factory.mktemp("merge") / "base")


def merge(
    base: Path, output: Path, *adapters: tuple[Path, float], out: bool = False
) -> dict[str, torch.Tensor]:
    """Merge with remap; the tensors of what was written."""
    weighed = [Weighed(read(folder), weight) for folder, weight in adapters]
    write_model((taken_out if out else merged)(remap.open(base).catalog, weighed), output, How())
    return load_file(output / "model.safetensors")


@pytest.mark.parametrize("method", MERGED)
def test_as_peft_merges(base: Path, tmp_path: Path, method: str) -> None:
    model = bench.made(models.neox(), bench.METHODS[method], tmp_path / "adapter")
    wanted = bench.quietly(model.merge_and_unload).state_dict()
    found = merge(base, tmp_path / "merged", (tmp_path / "adapter", 1.0))
    assert found.keys() == wanted.keys()
    for key, tensor in wanted.items():
        torch.testing.assert_close(found[key], tensor, rtol=2e-6, atol=2e-7)


@pytest.mark.parametrize("method", ["lora-all", "saved", "ia3", "bias-all", "layer-norms"])
def test_bit_for_bit_where_the_arithmetic_is_the_same(base: Path, tmp_path: Path, method: str) -> None:
    model = bench.made(models.neox(), bench.METHODS[method], tmp_path / "adapter")
    wanted = bench.quietly(model.merge_and_unload).state_dict()
    found = merge(base, tmp_path / "merged", (tmp_path / "adapter", 1.0))
    assert [k for k, t in wanted.items() if not torch.equal(found[k], t)] == []


def test_bfloat16_is_rounded_once(tmp_path: Path) -> None:
    """PEFT rounds the change, and then the sum; the exact sum rounded once is nearer."""
    model = models.neox().bfloat16()
    base = models.saved(model, tmp_path / "base")
    bench.made(models.neox(), bench.METHODS["lora-all"], tmp_path / "adapter")
    found = merge(base, tmp_path / "merged", (tmp_path / "adapter", 1.0))
    exact = bench.quietly(bench.on(models.neox().bfloat16().float(), tmp_path / "adapter").merge_and_unload)
    for key, tensor in exact.state_dict().items():
        assert torch.equal(found[key], tensor.bfloat16()), key


def test_several_with_weights(base: Path, tmp_path: Path) -> None:
    """As PEFT's linear combination of adapters does, but without an error from joining their factors."""
    bench.made(models.neox(), bench.METHODS["lora-all"], tmp_path / "a")
    bench.made(models.neox(), bench.METHODS["patterns"], tmp_path / "b", seed=2)
    found = merge(base, tmp_path / "merged", (tmp_path / "a", 0.8), (tmp_path / "b", -0.5))
    one = merge(base, tmp_path / "one", (tmp_path / "a", 1.0))
    other = merge(base, tmp_path / "other", (tmp_path / "b", 1.0))
    for key, w in load_file(base / "model.safetensors").items():
        torch.testing.assert_close(found[key], w + 0.8 * (one[key] - w) - 0.5 * (other[key] - w))


@pytest.mark.parametrize("method", ["dora", "ia3", "saved"])
def test_a_weight_is_the_share_of_what_is_replaced(base: Path, tmp_path: Path, method: str) -> None:
    bench.made(models.neox(), bench.METHODS[method], tmp_path / "adapter")
    whole = merge(base, tmp_path / "whole", (tmp_path / "adapter", 1.0))
    half = merge(base, tmp_path / "half", (tmp_path / "adapter", 0.5))
    for key, w in load_file(base / "model.safetensors").items():
        torch.testing.assert_close(half[key], (w + whole[key]) / 2)


def test_taken_out_again(base: Path, tmp_path: Path) -> None:
    bench.made(models.neox(), bench.METHODS["patterns"], tmp_path / "adapter")
    merge(base, tmp_path / "merged", (tmp_path / "adapter", 0.8))
    found = merge(tmp_path / "merged", tmp_path / "out", (tmp_path / "adapter", 0.8), out=True)
    for key, w in load_file(base / "model.safetensors").items():
        torch.testing.assert_close(found[key], w, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("method", ["dora", "ia3", "saved"])
def test_what_was_replaced_is_not_taken_out(base: Path, tmp_path: Path, method: str) -> None:
    bench.made(models.neox(), bench.METHODS[method], tmp_path / "adapter")
    with pytest.raises(UsageError, match="can't be taken out"):
        merge(base, tmp_path / "out", (tmp_path / "adapter", 1.0), out=True)


def test_methods_that_do_not_add_are_named(base: Path, tmp_path: Path) -> None:
    bench.made(models.neox(), bench.METHODS["oft"], tmp_path / "adapter")
    with pytest.raises(UsageError, match="oft_R") as refused:
        merge(base, tmp_path / "merged", (tmp_path / "adapter", 1.0))
    assert len(refused.value.problems) == models.LAYERS


def test_a_base_of_other_names_is_explained(base: Path, tmp_path: Path) -> None:
    """transformers 5 writes GPT-NeoX's head under its old name: an adapter of the head finds none."""
    models.neox().save_pretrained(tmp_path / "disk")
    bench.made(models.neox(), peft.LoraConfig(target_modules=["lm_head", "dense"]), tmp_path / "adapter")
    with pytest.raises(UsageError) as refused:
        merge(tmp_path / "disk", tmp_path / "merged", (tmp_path / "adapter", 1.0))
    assert refused.value.problems == ("lm_head.weight",)
    assert "-r transformers/gptneox-4-to-5 --inverse" in str(refused.value.remedy)


def test_a_base_of_other_sizes_is_refused(tmp_path: Path) -> None:
    base = models.saved(models.neox(), tmp_path / "base")
    bench.made(models.neox(), bench.METHODS["lora"], tmp_path / "adapter")
    tensors = load_file(base / "model.safetensors")
    key = "gpt_neox.layers.1.attention.query_key_value.weight"
    save_file({**tensors, key: tensors[key][:, :16].contiguous()}, base / "model.safetensors")
    with pytest.raises(UsageError, match="other sizes") as refused:
        merge(base, tmp_path / "merged", (tmp_path / "adapter", 1.0))
    assert refused.value.problems == (f"{key}: the adapter changes [96, 32], the base has [96, 16]",)


def test_what_is_changed_is_told(base: Path, tmp_path: Path) -> None:
    bench.made(models.neox(), bench.METHODS["one-layer"], tmp_path / "adapter")
    plan = merged(remap.open(base).catalog, [Weighed(read(tmp_path / "adapter"))])
    assert [o.key for o in plan.outputs if o.op == "merge"] == [
        "gpt_neox.layers.1.attention.query_key_value.weight"
    ]


@pytest.mark.parametrize(
    "setting", [{"init_lora_weights": "pissa_niter_4"}, {"alora_invocation_tokens": [1]}]
)
def test_more_than_factors_is_not_merged(base: Path, tmp_path: Path, setting: dict[str, object]) -> None:
    bench.made(models.neox(), bench.METHODS["lora"], tmp_path / "adapter")
    file = tmp_path / "adapter/adapter_config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **setting}))
    with pytest.raises(UsageError, match="can't be merged") as refused:
        merge(base, tmp_path / "merged", (tmp_path / "adapter", 1.0))
    assert next(iter(setting)) in refused.value.problems[0]


def test_convolutions(tmp_path: Path) -> None:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.wide, self.point = torch.nn.Conv2d(3, 6, 3), torch.nn.Conv2d(6, 4, 1)

    net = models.randomised(Net())
    save_file(net.state_dict(), tmp_path / "base.safetensors")
    for use_dora in (False, True):
        config = peft.LoraConfig(r=2, lora_alpha=3, target_modules=["wide", "point"], use_dora=use_dora)
        folder = tmp_path / f"adapter{use_dora}"
        wanted = bench.quietly(bench.made(net, config, folder).merge_and_unload).state_dict()
        write_model(
            merged(remap.open(tmp_path / "base.safetensors").catalog, [Weighed(read(folder))]),
            tmp_path / f"merged{use_dora}.safetensors",
            How(),
        )
        found = load_file(tmp_path / f"merged{use_dora}.safetensors")
        for key, tensor in wanted.items():
            torch.testing.assert_close(found[key], tensor, rtol=1e-5, atol=1e-6)


def test_a_tied_tensor_changes_along(tmp_path: Path) -> None:
    words = torch.rand(6, 4)
    torch.save({"words.weight": words, "head.weight": words}, tmp_path / "base.pt")
    adapter = tmp_path / "adapter"
    adapter.mkdir()
    front = "base_model.model.words.lora_embedding"
    a, b = torch.rand(2, 6), torch.rand(4, 2)
    save_file({f"{front}_A": a, f"{front}_B": b}, adapter / "adapter_model.safetensors")
    (adapter / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "r": 2, "lora_alpha": 2}))
    plan = merged(remap.open(tmp_path / "base.pt").catalog, [Weighed(read(adapter))])
    assert plan.notes == ("head.weight is tied to words.weight, which is changed: it changes, too",)
    write_model(plan, tmp_path / "merged.pt", How())
    found = torch.load(tmp_path / "merged.pt", weights_only=True)
    for key in ("words.weight", "head.weight"):
        torch.testing.assert_close(found[key], words + (b @ a).T)


def test_experts(tmp_path: Path) -> None:
    """A parameter of three dimensions, as PEFT merges it."""

    class Experts(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gate_up_proj = torch.nn.Parameter(torch.zeros(3, 8, 4))
            self.down_proj = torch.nn.Parameter(torch.zeros(3, 4, 6))

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.experts = Experts()

    net = models.randomised(Net())
    save_file(net.state_dict(), tmp_path / "base.safetensors")
    targets = ["experts.gate_up_proj", "experts.down_proj"]
    config = peft.LoraConfig(r=2, lora_alpha=3, target_modules=[], target_parameters=targets)
    wanted = bench.quietly(bench.made(net, config, tmp_path / "adapter").merge_and_unload).state_dict()
    write_model(
        merged(remap.open(tmp_path / "base.safetensors").catalog, [Weighed(read(tmp_path / "adapter"))]),
        tmp_path / "merged.safetensors",
        How(),
    )
    found = load_file(tmp_path / "merged.safetensors")
    for key, tensor in wanted.items():
        torch.testing.assert_close(found[key], tensor, rtol=1e-5, atol=1e-6)


def test_a_quantised_base_is_refused(tmp_path: Path) -> None:
    bench.made(models.neox(), bench.METHODS["lora"], tmp_path / "adapter")
    tensors = models.neox().state_dict()
    key = "gpt_neox.layers.0.attention.query_key_value.weight"
    save_file({**tensors, key: tensors[key].to(torch.int8)}, tmp_path / "base.safetensors")
    with pytest.raises(UsageError, match="can't be merged") as refused:
        merged(remap.open(tmp_path / "base.safetensors").catalog, [Weighed(read(tmp_path / "adapter"))])
    assert refused.value.problems[0].startswith(f"{key}: int8 holds quantised values")


def test_a_weight_is_a_finite_number(base: Path, tmp_path: Path) -> None:
    bench.made(models.neox(), bench.METHODS["lora"], tmp_path / "adapter")
    with pytest.raises(UsageError, match="finite"):
        write_merged(base, [tmp_path / "adapter"], tmp_path / "merged", weights=[float("nan")])
