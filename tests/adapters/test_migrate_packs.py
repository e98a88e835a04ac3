"""Merging and then converting gives what converting both and then merging gives, for any pack."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

import remap
from remap.adapters import read
from remap.adapters.merging.merge import Weighed, merged
from remap.adapters.migrating.follow import migrated
from remap.adapters.write import write_adapter, write_model
from remap.errors import PlanError
from remap.output import How
from remap.packs import Pack
from remap.plan import make_plan

RANDOM = torch.Generator().manual_seed(0)


def randn(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=RANDOM)


def checkpoint(
    folder: Path, tensors: Mapping[str, torch.Tensor], config: Mapping[str, object] | None = None
) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    save_file({k: t.contiguous() for k, t in tensors.items()}, folder / "model.safetensors")
    if config:
        (folder / "config.json").write_text(json.dumps(config))
    return folder


def lora(
    folder: Path,
    shapes: Mapping[str, tuple[int, int]],
    ranks: Mapping[str, int] | None = None,
    **config: object,
) -> Path:
    """A LoRA on modules: path -> (outputs, inputs)."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {}
    for module, (outputs, inputs) in shapes.items():
        rank = (ranks or {}).get(module, 2)
        tensors[f"base_model.model.{module}.lora_A.weight"] = randn(rank, inputs)
        tensors[f"base_model.model.{module}.lora_B.weight"] = randn(outputs, rank)
    save_file(tensors, folder / "adapter_model.safetensors")
    said = {
        "peft_type": "LORA",
        "r": 2,
        "lora_alpha": 3,
        "target_modules": list(shapes),
        "rank_pattern": dict(ranks or {}),
    }
    (folder / "adapter_config.json").write_text(json.dumps({**said, **config}))
    return folder


def commutes(
    root: Path,
    pack: str,
    base: Path,
    adapter: Path,
    *,
    inverse: bool = False,
    params: Mapping[str, str] | None = None,
) -> Path:
    """Both ways give the same weights; the migrated adapter."""
    rules = root / "pack.yaml"
    if "\n" in pack:
        root.mkdir(exist_ok=True)
        rules.write_text(pack)
    given = rules if "\n" in pack else pack
    write_model(merged(remap.open(base).catalog, [Weighed(read(adapter))]), root / "merged", How())
    wanted = remap.convert(root / "merged", root / "wanted", [given], inverse=inverse, params=params)
    remap.convert(base, root / "converted", [given], inverse=inverse, params=params)
    packs = remap.planning.load_packs([given])
    found = migrated(read(adapter), packs, base=remap.open(base).catalog, inverse=inverse, params=params)
    write_adapter(found.plan, root / "migrated", found.config, How())
    write_model(
        merged(remap.open(root / "converted").catalog, [Weighed(read(root / "migrated"))]),
        root / "found",
        How(),
    )
    expected, got = load_file(root / "wanted/model.safetensors"), load_file(root / "found/model.safetensors")
    assert wanted.tensors.keys() == expected.keys() == got.keys()
    for key, tensor in expected.items():
        torch.testing.assert_close(got[key], tensor, rtol=1e-4, atol=1e-4)
    return root / "migrated"


def load_packs_of(root: Path, text: str) -> list[Pack]:
    (root / "pack.yaml").write_text(text)
    return remap.planning.load_packs(root / "pack.yaml")


HEAD = "remap: 1\npack: test/p\nversion: 1.0.0\ntitle: t\nstages:\n  - rules:\n"
OPS = {
    "transpose": ("to: 'm.x.weight'", "do: transpose"),
    "split-rows": ("to: ['m.x.weight', 'm.y.weight']", "do: split"),
    "split-columns": (
        "to: ['m.x.weight', 'm.y.weight', 'm.z.weight']",
        "do: {split: {dim: 1, sizes: [6, 2, 4]}}",
    ),
    "heads": (
        "to: ['m.x.weight', 'm.y.weight', 'm.z.weight']",
        "do: {split_qkv: {layout: heads, heads: 2}}",
    ),
    "groups": (
        "to: ['m.x.weight', 'm.y.weight', 'm.z.weight']",
        "do: {split_qkv: {layout: groups, heads: 4, kv_heads: 2}}",
    ),
    "rotary": ("to: 'm.x.weight'", "do: {rotary: {heads: 2, from: interleaved, to: half}}"),
    "part-rotary": (
        "to: 'm.x.weight'",
        "do: {rotary: {heads: 2, from: half, to: interleaved, rotary_dim: 4}}",
    ),
    "deinterleave": ("to: ['m.x.weight', 'm.y.weight']", "do: deinterleave"),
    "pad": ("to: 'm.x.weight'", "do: {pad: {to: 20, dim: 1}}"),
    "unpad": ("to: 'm.x.weight'", "do: {unpad: {to: 10}}"),
    "scale": ("to: 'm.x.weight'", "do: {scale: {by: 0.3, rounding: allowed}}"),
    "offset": ("to: 'm.x.weight'", "do: {add_offset: {by: 1.0, rounding: allowed}}"),
    "slice": ("to: 'm.x.weight'", "do: {slice: {dim: 1, start: 2, stop: 9}}"),
    "twice": ("to: ['m.x.weight', 'm.y.weight']", "do: [transpose, {split: {dim: 0}}]"),
}
"""An op on a weight of [24, 12] that an adapter changes."""
JOINS = {
    "concat-rows": "do: concat",
    "concat-columns": "do: {concat: {dim: 1}}",
    "interleave": "do: interleave",
    "sum": "do: sum",
    "stack": "do: {stack: {dim: 0}}",
    "stack-and-turn": "do: [{stack: {dim: 0}}, {permute: {dims: [0, 2, 1]}}]",
    "blocks": "do: {fuse_qkv: {layout: blocks, order: [k, v, q], heads: 2}}",
    "heads": "do: {fuse_qkv: {layout: heads, heads: 2}}",
}
"""Three weights of [24, 12], of which an adapter changes some, become one."""


@pytest.mark.parametrize("op", OPS)
def test_one_weight(tmp_path: Path, op: str) -> None:
    base = checkpoint(tmp_path / "base", {"m.w.weight": randn(24, 12)})
    adapter = lora(tmp_path / "lora", {"m.w": (24, 12)})
    to, do = OPS[op]
    pack = f"{HEAD}      - id: r\n        from: 'm.w.weight'\n        {to}\n        {do}\n"
    if op == "slice":
        pack += "        inverse: none\n        because: it cuts\n"
    commutes(tmp_path, pack, base, adapter)


@pytest.mark.parametrize("changed", ["abc", "b", "ac"])
@pytest.mark.parametrize("op", JOINS)
def test_three_weights(tmp_path: Path, op: str, changed: str) -> None:
    base = checkpoint(tmp_path / "base", {f"m.{x}.weight": randn(24, 12) for x in "abc"})
    adapter = lora(tmp_path / "lora", {f"m.{x}": (24, 12) for x in changed}, {f"m.{changed[0]}": 3})
    pack = (
        f"{HEAD}      - id: r\n        from: ['m.a.weight', 'm.b.weight', 'm.c.weight']\n"
        f"        to: 'm.x.weight'\n        {JOINS[op]}\n"
    )
    if op == "sum":
        pack += "        inverse: none\n        because: it adds\n"
    commutes(tmp_path, pack, base, adapter)


MAPS = (
    "transpose",
    "{rotary: {heads: 2, from: interleaved, to: half}}",
    "{rotary: {heads: 3, from: half, to: interleaved, rotary_dim: 2}}",
    "{pad: {to: 30}}",
    "{pad: {to: 26, dim: 1}}",
    "{scale: {by: -0.5}}",
    "{slice: {dim: 0, start: 2, stop: 8}}",
    "{slice: {dim: 1, start: 0, stop: 6}}",
    "{reshape: {to: [12, 24]}}",
    "{reshape: {to: [4, 6, 12]}}",
    "{permute: {dims: [1, 0, 2]}}",
    "{reshape: {to: [24, 12]}}",
)
ENDS = (
    ("{concat: {dim: 0}}", "split", 2),
    ("{concat: {dim: 1}}", "{split: {dim: 1}}", 3),
    ("interleave", "deinterleave", 2),
    ("{fuse_qkv: {layout: heads, heads: 2}}", "{split_qkv: {layout: heads, heads: 4}}", 3),
    ("{fuse_qkv: {layout: blocks, heads: 2}}", "{split_qkv: {layout: groups, heads: 4, kv_heads: 4}}", 3),
    ("stack", "unstack", 2),
)


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(ENDS),
    st.sampled_from(ENDS),
    st.lists(st.sampled_from(MAPS), max_size=3),
    st.sets(st.integers(0, 2), min_size=1),
)
def test_any_pack(
    tmp_path_factory: pytest.TempPathFactory,
    start: tuple[str, str, int],
    end: tuple[str, str, int],
    maps: list[str],
    changed: set[int],
) -> None:
    """Weights are joined, changed in order and shape, and cut again; what has no factors then is refused."""
    root = tmp_path_factory.mktemp("pack")
    join, _, before = start
    _, cut, after = end
    base = checkpoint(root / "base", {f"m.{n}.weight": randn(24, 12) for n in range(before)})
    adapter = lora(root / "lora", {f"m.{n}": (24, 12) for n in changed if n < before} or {"m.0": (24, 12)})
    names = [[f"{side}.{n}.weight" for n in range(count)] for side, count in (("m", before), ("x", after))]
    pack = (
        f"{HEAD}      - id: r\n        from: {names[0]}\n        to: {names[1]}\n"
        f"        do: [{', '.join([join, *maps, cut])}]\n        inverse: none\n        because: a test\n"
    )
    rules = load_packs_of(root, pack)
    try:
        make_plan(remap.open(base).catalog, rules)
    except PlanError:
        return  # these ops don't fit together
    try:
        commutes(root, pack, base, adapter)
    except PlanError as e:
        assert "can't follow its base" in e.what or "nothing of the adapter is left" in e.what  # noqa: PT017
