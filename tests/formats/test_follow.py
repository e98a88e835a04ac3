"""Moments follow their weights through whatever moves elements; what has no meaning for them is refused, with
the reason."""

from __future__ import annotations

import pytest
import torch

from remap.dtypes import dtype
from remap.errors import UsageError
from remap.expr import Affine, Cast, Concat, Constant, Pad, Permute, Reshape, Slice, Sum, Take
from remap.formats import registry
from remap.formats.follow import follow
from remap.stream.read import read_expr
from remap.types import OptimizerState, TensorSpec

F32 = dtype("f32")


@pytest.fixture
def entries(tmp_path):
    """Weights ``a``, ``b``, ``frozen``, and a moment of the first two: of other values, as its name says."""
    file = tmp_path / "all.pt"
    weights = {"a": torch.arange(6.0).reshape(2, 3), "b": torch.ones(2, 3), "frozen": torch.zeros(2, 3)}
    moments = {f"{k}.exp_avg": v + 10 for k, v in weights.items() if k != "frozen"}
    torch.save({**weights, **moments, "step": torch.tensor(3.0), "row": torch.tensor([1.0, 2.0])}, file)
    return registry.open_catalog(file).entries


@pytest.fixture
def take(entries):
    return {k: Take(e) for k, e in entries.items()}


@pytest.fixture
def state(entries):
    held = {k: {"exp_avg": entries[f"{k}.exp_avg"], "step": entries["step"]} for k in ("a", "b")}
    return OptimizerState("optimizer", held, {}, [{"lr": 0.1, "params": ["a", "b"]}])


def values(expr) -> torch.Tensor:
    data = b"".join(bytes(part) for part in read_expr(expr, 1 << 20))
    return torch.frombuffer(bytearray(data), dtype=torch.float32).reshape(expr.spec.shape)


def test_a_moment_gets_its_weights_name_and_group(state, take):
    found = follow(state, {"x.a": take["a"], "x.b": take["b"], "x.frozen": take["frozen"]})
    assert values(found.tensors["x.a"]["exp_avg"]).equal(torch.arange(10.0, 16).reshape(2, 3))
    assert values(found.tensors["x.a"]["step"]).item() == 3
    assert found.groups == [{"lr": 0.1, "params": ["x.a", "x.b"]}]
    assert "x.frozen" not in found.tensors


A = torch.arange(10.0, 16).reshape(2, 3)
B = torch.full((2, 3), 11.0)


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (lambda t: Permute(t["a"], (1, 0)), A.T),
        (lambda t: Slice(t["a"], 1, 0, 2), A[:, :2]),
        (lambda t: Reshape(t["a"], (6,)), A.flatten()),
        (lambda t: Concat((t["b"], t["a"]), 1), torch.cat([B, A], 1)),
        (lambda t: Pad(t["a"], 0, 0, 1, value=5.0), torch.cat([A, torch.zeros(1, 3)])),
        (lambda t: Cast(t["a"], dtype("bf16")), A),
        (lambda t: Affine(t["a"], offset=1.0), A),
        (
            lambda t: Concat((t["a"], Constant(TensorSpec(F32, (1, 3)), 4.0))),
            torch.cat([A, torch.zeros(1, 3)]),
        ),
    ],
    ids=["permute", "slice", "reshape", "concat", "pad", "cast", "shift", "beside new rows"],
)
def test_what_moves_a_weight_moves_its_moments(state, take, build, expected):
    rest = {k: take[k] for k in "ab"}
    moved = follow(state, {"new": build(take), **rest}).tensors["new"]["exp_avg"]
    assert (moved.spec.dtype, values(moved).equal(expected)) == (F32, True)


@pytest.mark.parametrize(
    ("build", "why"),
    [
        (lambda t: Affine(t["a"], scale=2.0), "it is scaled"),
        (lambda t: Sum((t["a"], t["b"])), "it is a sum"),
        (lambda t: Concat((t["a"], t["frozen"])), "some of it is frozen, or has another state"),
    ],
)
def test_what_has_no_meaning_for_moments_is_refused_with_the_reason(state, take, build, why):
    with pytest.raises(UsageError, match=r"can't follow[\s\S]*--no-optimizer") as caught:
        follow(state, {"new": build(take), "a": take["a"], "b": take["b"]})
    assert caught.value.problems == (f"new: {why}",)


def test_rows_and_columns_of_adafactor_follow_a_rename_only(entries, take):
    # exp_avg_sq_row has an element a row: of a transposed weight it would be another's
    held = {"a": {"exp_avg_sq_row": entries["row"], "step": entries["step"]}}
    state = OptimizerState("optimizer", held, {}, [{"params": ["a"]}])
    assert values(follow(state, {"x": take["a"]}).tensors["x"]["exp_avg_sq_row"]).tolist() == [1, 2]
    with pytest.raises(UsageError) as caught:
        follow(state, {"x": Permute(take["a"], (1, 0))})
    assert caught.value.problems == ("x: its exp_avg_sq_row is f32[2] and it is [2, 3]",)


def test_weights_of_two_groups_are_not_put_together(entries, take):
    held = {k: {"exp_avg": entries[f"{k}.exp_avg"]} for k in ("a", "b")}
    state = OptimizerState("optimizer", held, {}, [{"params": ["a"]}, {"params": ["b"]}])
    with pytest.raises(UsageError) as caught:
        follow(state, {"new": Concat((take["a"], take["b"]))})
    assert caught.value.problems == ("new: it is put together over parameter groups",)


def test_the_state_of_a_weight_that_is_dropped_is_not_dropped_silently(state, take):
    with pytest.raises(UsageError) as caught:
        follow(state, {"a": take["a"]})
    assert caught.value.problems == ("b: it is dropped",)
