"""Moments of tensor-parallel ranks are merged like their weights, those of addends like copies."""

from __future__ import annotations

import pytest
import torch

from remap.errors import Damaged, InputError
from remap.expr import Take
from remap.formats import registry
from remap.partitions.base import Merging
from remap.partitions.moments import merge_state
from remap.partitions.registry import read_partition
from remap.stream.read import read_expr
from remap.types import OptimizerState, rank_key


def cls(text: str):
    return read_partition(text).resolve({})


@pytest.fixture
def entries(tmp_path):
    """``x``, ``y``: two ranks' moments; ``step``; ``other``, of another value than ``x``."""
    x, y = torch.arange(4.0).reshape(2, 2), torch.arange(4.0).reshape(2, 2) + 10
    held = {"x": x, "y": y, "copy": x.clone(), "other": x + 1, "step": torch.tensor(3.0)}
    torch.save(held, tmp_path / "moments.pt")
    return registry.open_catalog(tmp_path / "moments.pt").entries


def state_of(first, second, step) -> OptimizerState:
    tensors = {rank_key("w", r): {"exp_avg": e, "step": step} for r, e in enumerate((first, second))}
    return OptimizerState("optimizer", tensors, {}, [{"lr": 0.1, "params": list(tensors)}])


def values(entry) -> list[list[float]]:
    data = b"".join(bytes(part) for part in read_expr(Take(entry), 1 << 20))
    return torch.frombuffer(bytearray(data), dtype=torch.float32).reshape(entry.spec.shape).tolist()


@pytest.mark.parametrize(
    ("spelled", "pair", "expected"),
    [
        ("rows", ("x", "y"), [[0, 1], [2, 3], [10, 11], [12, 13]]),
        ("columns", ("x", "y"), [[0, 1, 10, 11], [2, 3, 12, 13]]),
        ("fused(2)", ("x", "y"), [[0, 1], [10, 11], [2, 3], [12, 13]]),
        ("replicated", ("x", "copy"), [[0, 1], [2, 3]]),
        ("addends", ("x", "copy"), [[0, 1], [2, 3]]),
    ],
)
def test_a_moment_is_divided_like_its_weight(entries, spelled, pair, expected):
    state = state_of(*(entries[n] for n in pair), entries["step"])
    whole = merge_state(state, {"w": cls(spelled)}, 2, Merging())
    assert values(whole.tensors["w"]["exp_avg"]) == expected
    assert values(whole.tensors["w"]["step"]) == 3
    assert whole.groups == [{"lr": 0.1, "params": ["w"]}]


def test_copies_that_differ_are_found_when_they_are_read(entries):
    """The gradient of a sum is that of each addend, so addends' moments are copies, too."""
    state = state_of(entries["x"], entries["other"], entries["step"])
    whole = merge_state(state, {"w": cls("addends")}, 2, Merging())
    with pytest.raises(Damaged, match="do not agree"):
        values(whole.tensors["w"]["exp_avg"])
    first = merge_state(state, {"w": cls("addends")}, 2, Merging(copies="first"))
    assert values(first.tensors["w"]["exp_avg"]) == [[0, 1], [2, 3]]


def test_a_rank_without_a_moment_is_named(entries):
    state = state_of(entries["x"], entries["y"], entries["step"])
    lacking = {k: ({} if k == rank_key("w", 1) else v) for k, v in state.tensors.items()}
    with pytest.raises(InputError, match=r"can't be put together[\s\S]*w: ranks keep different things"):
        merge_state(OptimizerState("o", lacking, {}, state.groups), {"w": cls("rows")}, 2, Merging())


def test_a_frozen_weight_has_no_moments(entries):
    state = state_of(entries["x"], entries["y"], entries["step"])
    whole = merge_state(state, {"w": cls("rows"), "frozen": cls("rows")}, 2, Merging())
    assert whole.tensors.keys() == {"w"}
