"""The factors of a cut, joined or permuted weight have the product that the weight's change becomes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from ops.values import Bench

from remap.adapters.algebra.assemble import Factors, assemble
from remap.adapters.algebra.follow import follow
from remap.adapters.algebra.given import experts_of, term_of
from remap.adapters.algebra.terms import Delta, NotLowRank
from remap.expr import Affine, Concat, Expr, Pad, Permute, Reshape, Slice, Sum, Take, blocks


class Lab:
    """Base weights that a LoRA changes, and what the change is."""

    def __init__(self, folder: Path) -> None:
        self.bench = Bench(folder)
        self.deltas: dict[str, Delta] = {}
        self.values: dict[str, torch.Tensor] = {}

    def weight(
        self, rows: int, columns: int, rank: int = 2, scale: float = 2.0, *, flipped: bool = False
    ) -> Take:
        """A weight with a change of that rank; ``flipped`` lies [in, out]."""
        (a, first), (b, second) = self.factor(rank, columns), self.factor(rows, rank)
        change = scale * b @ a
        return self._put(
            change.T if flipped else change, term_of("linear", first, second, scale, flipped=flipped)
        )

    def experts(self, count: int, rows: int, columns: int, rank: int = 2) -> Take:
        """Stacked experts, changed as PEFT changes a parameter of three dimensions."""
        (a, first), (b, second) = self.factor(count * rank, columns), self.factor(rows, rank * count)
        change = torch.einsum("ore,eri->eoi", b.reshape(rows, rank, count), a.reshape(count, rank, columns))
        return self._put(change, experts_of(first, second, count, 1.0))

    def unchanged(self, *shape: int) -> Take:
        """A weight that nothing changes."""
        return self.bench.put(torch.zeros(shape))

    def factor(self, *shape: int) -> tuple[torch.Tensor, Take]:
        tensor = torch.randn(shape, generator=torch.Generator().manual_seed(self.bench.count))
        return tensor, self.bench.put(tensor)

    def _put(self, change: torch.Tensor, delta: Delta) -> Take:
        take = self.bench.put(change)  # the weight's value is its change: what is linear treats both alike
        self.deltas[take.entry.key] = delta
        return take

    def judge(self, expr: Expr) -> Factors:
        """The factors of ``expr``, after their product was compared with its value."""
        found = assemble(follow(expr, self.deltas.get))
        torch.testing.assert_close(
            product(found, expr.spec.shape), blocks.evaluate(expr), rtol=1e-5, atol=1e-5
        )
        return found


def product(factors: Factors, shape: tuple[int, ...]) -> torch.Tensor:
    """What PEFT adds to the weight."""
    a, b = blocks.evaluate(factors.a), blocks.evaluate(factors.b)
    if factors.kind == "experts":
        whole = torch.einsum(
            "ore,eri->eoi",
            b.reshape(len(b), factors.rank, shape[0]),
            a.reshape(shape[0], factors.rank, a.shape[1]),
        )
        return factors.scale * (whole.transpose(1, 2) if factors.flipped else whole)
    whole = factors.scale * b.flatten(1) @ a.flatten(1)
    return (whole.T if factors.flipped else whole).reshape(shape)


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path)


def test_rows_are_b_and_columns_a(lab: Lab) -> None:
    w = lab.weight(12, 6)
    rows = lab.judge(Slice(w, 0, 4, 8))
    assert (rows.a, rows.b.spec.shape) == (next(iter(lab.deltas.values())).terms[0].a, (4, 2))
    columns = lab.judge(Slice(w, 1, 1, 3))
    assert (columns.a.spec.shape, columns.b.spec.shape) == ((2, 2), (12, 2))


def test_what_was_split_comes_together_without_more_ranks(lab: Lab) -> None:
    w = lab.weight(12, 6)
    parts = tuple(Slice(w, 0, n, n + 4) for n in (0, 4, 8))
    whole = lab.judge(Concat(parts))
    (term,) = lab.deltas[w.entry.key].terms
    assert (whole.a, whole.b, whole.rank) == (term.a, term.b, 2)


def test_others_are_laid_beside_each_other(lab: Lab) -> None:
    q, k, v = lab.weight(8, 6, 2), lab.unchanged(4, 6), lab.weight(4, 6, 3)
    whole = lab.judge(Concat((q, k, v)))
    assert (whole.rank, whole.scale) == (5, 2.0)
    b = blocks.evaluate(whole.b)
    assert not torch.cat([b[:8, 2:].flatten(), b[8:12].flatten(), b[12:, :2].flatten()]).any()
    across = lab.judge(Concat((lab.weight(8, 6, 2), lab.weight(8, 5, 1)), 1))
    assert (across.rank, across.a.spec.shape) == (3, (3, 11))


def test_heads_are_interleaved_and_taken_apart(lab: Lab) -> None:
    """GPT-NeoX's query_key_value: [heads, 3, head_dim] rows, here of 4 heads of 2."""
    w = lab.weight(24, 6)
    view = Reshape(w, (4, 3, 2, 6))
    q, k, v = (Reshape(Slice(view, 1, n, n + 1), (8, 6)) for n in range(3))
    for part in (q, k, v):
        assert lab.judge(part).rank == 2
    again = Reshape(Concat(tuple(Reshape(p, (4, 1, 2, 6)) for p in (q, k, v)), 1), (24, 6))
    assert lab.judge(again).rank == 2
    fresh = tuple(Reshape(lab.weight(8, 6), (4, 1, 2, 6)) for _ in range(3))
    assert lab.judge(Reshape(Concat(fresh, 1), (24, 6))).rank == 6


def test_a_transposition_turns_a_linear_layer_into_a_conv1d(lab: Lab) -> None:
    w = lab.weight(8, 6)
    turned = lab.judge(Permute(w, (1, 0)))
    (term,) = lab.deltas[w.entry.key].terms
    assert (turned.flipped, turned.a, turned.b) == (True, term.a, term.b)
    assert not lab.judge(Permute(lab.weight(8, 6, flipped=True), (1, 0))).flipped


def test_experts_are_stacked_and_taken_apart(lab: Lab) -> None:
    def raised(e: Expr) -> Expr:
        return Reshape(e, (1, *e.spec.shape))

    gates = [(lab.weight(6, 4, 2), lab.weight(6, 4, 1)), (lab.unchanged(6, 4), lab.weight(6, 4, 2))]
    whole = lab.judge(Concat(tuple(raised(Concat(pair)) for pair in gates)))
    assert (whole.kind, whole.rank, whole.a.spec.shape, whole.b.spec.shape) == ("experts", 3, (6, 4), (12, 6))
    nothing = lab.judge(Concat((raised(lab.weight(6, 4)), raised(lab.unchanged(6, 4)))))
    assert nothing.rank == 2
    stacked = lab.experts(3, 6, 4)
    again = lab.judge(Reshape(Slice(stacked, 0, 1, 2), (6, 4)))
    assert (again.kind, again.rank) == ("linear", 2)
    assert lab.judge(Slice(stacked, 1, 0, 3)).rank == 2
    assert lab.judge(Permute(stacked, (0, 2, 1))).flipped
    assert lab.judge(Reshape(stacked, (18, 4))).rank == 6


def test_scales_that_differ_go_into_b(lab: Lab) -> None:
    whole = lab.judge(Concat((lab.weight(4, 6, scale=2.0), lab.weight(4, 6, scale=0.5))))
    assert whole.scale == 2.0
    assert lab.judge(Affine(lab.weight(4, 6), 0.25)).scale == 0.5


def test_sums_and_padding(lab: Lab) -> None:
    assert lab.judge(Sum((lab.weight(4, 6), lab.weight(4, 6)))).rank == 4
    assert lab.judge(Pad(lab.weight(4, 6), 0, 1, 3, 0.0)).rank == 2


def test_convolutions_have_flat_inputs(lab: Lab) -> None:
    (a, first), (b, second) = lab.factor(2, 3, 4, 4), lab.factor(8, 2, 1, 1)
    change = torch.einsum("orxy,rihw->oihw", b, a)
    w = lab._put(change, term_of("conv", first, second, 1.0))
    found = lab.judge(Slice(w, 0, 2, 6))
    assert (found.kind, found.a.spec.shape, found.b.spec.shape) == ("conv", (2, 3, 4, 4), (4, 2, 1, 1))
    assert lab.judge(Reshape(w, (8, 48))).kind == "linear"
    pointwise = lab.judge(Reshape(lab.weight(8, 6), (8, 6, 1, 1)))
    assert (pointwise.kind, pointwise.a.spec.shape) == ("conv", (2, 6, 1, 1))


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda w, u: Reshape(w, (48,)), "rows and columns"),
        (lambda w, u: Concat((w, Permute(u, (1, 0)))), "some parts are transposed"),
    ],
)
def test_what_has_no_factors_is_refused(lab: Lab, make: object, why: str) -> None:
    w, u = lab.weight(6, 8), lab.weight(8, 6)
    with pytest.raises(NotLowRank, match=why):
        assemble(follow(make(w, u), lab.deltas.get))  # type: ignore[operator]


@st.composite
def chains(draw: st.DrawFn) -> list[tuple[str, int, int]]:
    steps = st.tuples(
        st.sampled_from(("slice", "concat", "heads", "permute", "pad", "scale", "sum", "stack", "halves")),
        st.integers(0, 7),
        st.integers(0, 7),
    )
    return draw(st.lists(steps, min_size=1, max_size=6))


@settings(max_examples=150, deadline=None)
@given(chains())
def test_any_chain(tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int, int]]) -> None:
    """The product of the factors is the converted change, or the factors are refused."""
    lab = Lab(tmp_path_factory.mktemp("lab"))
    expr: Expr = lab.weight(8, 4)
    for op, x, y in steps:
        expr = _step(lab, expr, op, x, y)
    try:
        delta = follow(expr, lab.deltas.get)
        found = assemble(delta) if delta.terms else None
    except NotLowRank:
        return
    wanted = blocks.evaluate(expr)
    got = product(found, expr.spec.shape) if found else torch.zeros(expr.spec.shape)
    torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-4)


def _step(lab: Lab, expr: Expr, op: str, x: int, y: int) -> Expr:
    shape = expr.spec.shape
    dim = x % len(shape)
    n = shape[dim]
    if op == "slice":
        start = y % n
        return Slice(expr, dim, start, n if x % 2 else min(n, start + 1 + x))
    if op == "concat":
        other = lab.weight(*shape) if len(shape) == 2 else expr
        return Concat((expr, other) if y % 2 else (other, expr), dim)
    if op == "heads" and n % 2 == 0:
        split = Reshape(expr, (*shape[:dim], 2, n // 2, *shape[dim + 1 :]))
        order = list(range(len(shape) + 1))
        order[dim], order[dim + 1] = order[dim + 1], order[dim]
        return Reshape(Permute(split, tuple(order)), shape)
    if op == "permute":
        return Permute(expr, tuple(reversed(range(len(shape)))) if y % 2 else tuple(range(len(shape))))
    if op == "pad":
        return Pad(expr, dim, x % 3, y % 3)
    if op == "scale":
        return Affine(expr, (y - 3) / 4)
    if op == "sum":
        return Sum((expr, lab.weight(*shape) if len(shape) == 2 else expr))
    if op == "stack" and len(shape) == 2:
        return Concat(tuple(Reshape(e, (1, *shape)) for e in (expr, lab.weight(*shape))))
    if op == "halves" and n % 2 == 0:
        halves = (Slice(expr, dim, 0, n // 2), Slice(expr, dim, n // 2, n))
        return Concat(halves[:: -1 if y % 2 else 1], dim)
    return expr
