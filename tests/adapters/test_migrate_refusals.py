"""What can't follow its base is refused by name, all at once; what else there is to know of the edges."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import peft
import pytest
import torch
from adapters import bench, models
from adapters.test_migrate_packs import HEAD, checkpoint, commutes, lora, randn
from safetensors.torch import load_file, save_file

import remap
from remap.adapters import read
from remap.adapters.merging.merge import Weighed, merged
from remap.adapters.migrating.follow import Migrated, migrated
from remap.errors import Damaged, PlanError, UsageError

FUSE = f"""{HEAD}      - id: r
        from: ['m.q.{{p}}', 'm.k.{{p}}', 'm.v.{{p}}']
        to: 'm.qkv.{{p}}'
        do: concat
"""
COLUMNS = f"""{HEAD}      - id: r
        from: 'm.w.weight'
        to: ['m.x.weight', 'm.y.weight']
        do: {{split: {{dim: 1}}}}
"""


def folder(path: Path, tensors: Mapping[str, torch.Tensor], **config: object) -> Path:
    """A PEFT folder of any method; names are without what PEFT puts in front."""
    path.mkdir(parents=True)
    save_file({f"base_model.model.{k}": t for k, t in tensors.items()}, path / "adapter_model.safetensors")
    (path / "adapter_config.json").write_text(
        json.dumps({"peft_type": "LORA", "r": 2, "lora_alpha": 2, **config})
    )
    return path


def key_list(base: Path, path: Path) -> Path:
    entries = remap.open(base).catalog.entries
    path.write_text(json.dumps({k: [list(e.spec.shape), "float32"] for k, e in entries.items()}))
    return path


def follow(adapter: Path, text: str, base: Path | None = None) -> Migrated:
    return migrated(read(adapter), [bench.pack(text)], base=remap.open(base).catalog if base else None)


@pytest.fixture
def apart(tmp_path: Path) -> Path:
    """A base with query, key and value apart."""
    tensors = {f"m.{x}.weight": randn(8, 6) for x in "qkv"} | {f"m.{x}.bias": randn(8) for x in "qkv"}
    return checkpoint(tmp_path / "base", tensors)


def test_what_is_joined_with_others_needs_the_base(tmp_path: Path, apart: Path) -> None:
    adapter = lora(tmp_path / "lora", {"m.q": (8, 6), "m.v": (8, 6)})
    with pytest.raises(PlanError, match="not enough for the packs") as refused:
        follow(adapter, FUSE)
    assert "--base" in str(refused.value.remedy)
    commutes(tmp_path, FUSE, apart, adapter)


def test_biases_that_are_joined_need_its_values(tmp_path: Path, apart: Path) -> None:
    adapter = bench_bias(tmp_path / "lora")
    keys = key_list(apart, tmp_path / "keys.json")
    with pytest.raises(PlanError, match="can't follow its base") as refused:
        follow(adapter, FUSE, keys)
    assert refused.value.problems == (
        "m.q.bias -> m.qkv.bias: the base's m.k.bias, m.v.bias is needed: give the checkpoint (--base)",
    )
    commutes(tmp_path, FUSE, apart, adapter)


def bench_bias(path: Path) -> Path:
    tensors = {
        "m.q.lora_A.weight": randn(2, 6),
        "m.q.lora_B.weight": randn(8, 2),
        "m.q.base_layer.bias": randn(8),
    }
    return folder(path, tensors, bias="lora_only", target_modules=["q"])


def test_ia3_has_ones_for_what_it_does_not_change(tmp_path: Path, apart: Path) -> None:
    adapter = folder(
        tmp_path / "ia3",
        {"m.q.ia3_l": randn(8, 1)},
        peft_type="IA3",
        target_modules=["q"],
        feedforward_modules=[],
    )
    new = commutes(tmp_path, FUSE, apart, adapter)
    (factors,) = load_file(new / "adapter_model.safetensors").values()
    assert factors.shape == (24, 1)
    assert torch.equal(factors[8:], torch.ones(16, 1))


def test_ia3_of_inputs_is_the_same_for_every_part(tmp_path: Path) -> None:
    base = checkpoint(tmp_path / "base", {"m.w.weight": randn(8, 6)})
    adapter = folder(
        tmp_path / "ia3",
        {"m.w.ia3_l": randn(1, 6)},
        peft_type="IA3",
        target_modules=["w"],
        feedforward_modules=["w"],
    )
    rows = f"{HEAD}      - {{id: r, from: 'm.w.weight', to: ['m.x.weight', 'm.y.weight'], do: split}}\n"
    new = commutes(tmp_path / "rows", rows, base, adapter)
    config = json.loads((new / "adapter_config.json").read_text())
    assert config["feedforward_modules"] == config["target_modules"] == ["x", "y"]
    commutes(tmp_path / "columns", COLUMNS, base, adapter)


def test_lengths_of_rows_are_cut_and_joined_by_rows_only(tmp_path: Path, apart: Path) -> None:
    def dora(*names: str) -> Path:
        tensors = {}
        for x in names:
            tensors |= {f"m.{x}.lora_A.weight": randn(2, 6), f"m.{x}.lora_B.weight": randn(8, 2)}
            tensors[f"m.{x}.lora_magnitude_vector"] = randn(8).abs() + 1
        return folder(tmp_path / "-".join(names), tensors, use_dora=True, target_modules=list(names))

    commutes(tmp_path / "there", FUSE, apart, dora("q", "k", "v"))
    some = dora("q", "v")
    commutes(tmp_path / "some", FUSE, apart, some)  # the key's rows keep the lengths that the base has
    with pytest.raises(PlanError, match="can't follow its base") as refused:
        follow(some, FUSE, key_list(apart, tmp_path / "keys.json"))
    assert "DoRA's lengths of rows are known of some parts only" in refused.value.problems[0]
    with pytest.raises(PlanError) as refused:
        follow(dora("w"), COLUMNS)
    assert "DoRA's lengths of rows of a part of each row are not known" in refused.value.problems[0]
    assert len(refused.value.problems) == 2


def test_what_the_packs_drop_is_named_with_their_reason(tmp_path: Path) -> None:
    adapter = lora(tmp_path / "lora", {"m.w": (8, 6), "m.x": (8, 6)})
    drop = f"""{HEAD}      - {{id: gone, drop: 'm.w.weight', because: nobody reads it}}
      - keep: 'm.x.weight'
"""
    with pytest.raises(PlanError) as refused:
        follow(adapter, drop)
    assert refused.value.problems == ("m.w.weight: the packs drop it: nobody reads it",)


def test_what_is_cut_away_is_told(tmp_path: Path) -> None:
    adapter = lora(tmp_path / "lora", {"m.w": (8, 6), "m.x": (8, 6)})
    cut = (
        f"{HEAD}      - id: r\n        from: ['m.w.weight', 'm.x.weight']\n        to: 'm.y.weight'\n"
        "        do: [concat, {slice: {dim: 0, start: 8, stop: 16}}]\n"
        "        inverse: none\n        because: a test\n"
    )
    found = follow(adapter, cut)
    assert "m.w.weight: the packs cut away what the adapter changes" in found.plan.notes


def test_an_adapter_that_is_not_whole(tmp_path: Path) -> None:
    adapter = folder(tmp_path / "lora", {"m.w.lora_A.weight": randn(2, 6)}, target_modules=["w"])
    with pytest.raises(Damaged, match="not whole"):
        follow(adapter, f"{HEAD}      - keep: '**'\n")


def test_other_dialects_are_said_in_peft_s_first(tmp_path: Path) -> None:
    save_file(
        {"lora_unet_conv_in.lora_down.weight": randn(2, 4), "lora_unet_conv_in.lora_up.weight": randn(4, 2)},
        tmp_path / "kohya.safetensors",
    )
    with pytest.raises(UsageError, match="this is kohya") as refused:
        follow(tmp_path / "kohya.safetensors", f"{HEAD}      - keep: '**'\n")
    assert "--to peft" in str(refused.value.remedy)


def test_layers_to_transform_follow_where_they_are_short(tmp_path: Path) -> None:
    base = models.saved(models.neox(), tmp_path / "base")
    bench.made(models.neox(), bench.METHODS["one-layer"], tmp_path / "old")
    said = bench.migrate(tmp_path / "old", tmp_path / "new", [bench.pack(models.SIDEWAYS)], base)
    assert (said["target_modules"], said["layers_to_transform"]) == (["qkv"], [1])
    said = bench.migrate(tmp_path / "old", tmp_path / "alone", [bench.pack(models.SIDEWAYS)])
    assert said["layers_to_transform"] is None
    assert said["target_modules"] == ["gpt_neox.blocks.1.attention.qkv"]


def test_a_whole_path_that_is_the_end_of_another_becomes_a_pattern(tmp_path: Path) -> None:
    base = checkpoint(tmp_path / "base", {"l.w.weight": randn(8, 6), "m.l.w.weight": randn(8, 6)})
    adapter = lora(tmp_path / "lora", {"l.w": (8, 6)})
    rename = f"{HEAD}      - {{id: r, from: '{{a:path}}.w.weight', to: '{{a}}.x.weight'}}\n"
    config = follow(adapter, rename, base).config
    from peft.tuners.tuners_utils import check_target_module_exists

    peft_s = peft.LoraConfig(target_modules=config["target_modules"])
    assert [bool(check_target_module_exists(peft_s, m)) for m in ("l.x", "m.l.x")] == [True, False]


def test_vera_without_its_projections_is_not_merged(tmp_path: Path) -> None:
    base = checkpoint(tmp_path / "base", {"m.w.weight": randn(8, 6)})
    tensors = {"m.w.vera_lambda_b": randn(8), "m.w.vera_lambda_d": randn(2)}
    adapter = folder(tmp_path / "vera", tensors, peft_type="VERA", target_modules=["w"])
    with pytest.raises(UsageError, match="can't be merged") as refused:
        merged(remap.open(base).catalog, [Weighed(read(adapter))])
    assert "projections" in refused.value.problems[0]


@pytest.mark.parametrize(
    ("tensors", "said"),
    [
        ({"m.w.hada_w1_a": randn(8, 2)}, "there is no base_model.model.m.w.hada_w1_b"),
        ({"m.w.lokr_w1": randn(8), "m.w.lokr_w2": randn(1, 6)}, "lokr_w1 of shape [8]"),
        (
            {"m.w.lokr_w1": randn(2, 2), "m.w.lokr_w2": randn(3, 3)},
            "(36 elements) to [8, 6]",
        ),
        ({"m.w.ia3_l": randn(8)}, "ia3_l of shape [8]"),
    ],
)
def test_factors_that_are_none(tmp_path: Path, tensors: Mapping[str, torch.Tensor], said: str) -> None:
    base = checkpoint(tmp_path / "base", {"m.w.weight": randn(8, 6)})
    adapter = folder(tmp_path / "odd", tensors, peft_type="LOKR", target_modules=["w"], alpha=2)
    with pytest.raises((UsageError, Damaged)) as refused:
        merged(remap.open(base).catalog, [Weighed(read(adapter))])
    assert said in str(refused.value)
