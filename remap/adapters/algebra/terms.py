"""A change of a tensor as a sum of terms, each the product of two factors in a box of the tensor.

A dimension of the tensor belongs to the factor B (the output side of a layer), to the factor A (the input
side), or to neither where the box is one element wide. Which dimension is which doesn't depend on how the
weight lies: a linear layer's [out, in] is (B, A), a Conv1D's [in, out] is (A, B), and a transposition makes
the one of the other.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, Union

from remap.expr import Expr, Pad, Permute, Reshape, Slice

Side = Literal["A", "B", ""]
Box = tuple[tuple[int, int], ...]
Kind = Literal["linear", "embedding", "conv"]


@dataclass(frozen=True)
class Term:
    """``scale * sum over r of b[..., r] * a[r, ...]`` in ``box``, nothing elsewhere.

    sides  of each dimension of the tensor
    b      the sizes of the dimensions of side B in order, then the rank
    a      the rank, then the sizes of the dimensions of side A in order
    kind   of the layer that it comes from
    """

    box: Box
    sides: tuple[Side, ...]
    b: Expr
    a: Expr
    scale: float = 1.0
    kind: Kind = "linear"

    @property
    def rank(self) -> int:
        """Of the product."""
        return self.a.spec.shape[0]

    def axis(self, dim: int) -> int:
        """Which axis of its factor a dimension is."""
        side = self.sides[dim]
        before = sum(s == side for s in self.sides[:dim])
        return before + (side == "A")

    def factor(self, side: Side) -> Expr:
        """The factor of a side."""
        return self.a if side == "A" else self.b

    def changed(self, side: Side, factor: Expr) -> Term:
        """The term with another factor on a side."""
        return replace(self, a=factor) if side == "A" else replace(self, b=factor)


@dataclass(frozen=True)
class Delta:
    """The change of a tensor of this shape."""

    shape: tuple[int, ...]
    terms: tuple[Term, ...] = ()


class NotLowRank(Exception):
    """The change has no factors any more; the text says why."""


def cut(term: Term, dim: int, start: int, stop: int) -> Union[Term, None]:
    """What of a term lies in [start, stop) of a dimension, counted from ``start``; None for nothing."""
    first, last = term.box[dim]
    a, b = max(first, start), min(last, stop)
    if a >= b:
        return None
    if term.sides[dim] and (a, b) != (first, last):
        side = term.sides[dim]
        term = term.changed(side, Slice(term.factor(side), term.axis(dim), a - first, b - first))
    return narrowed(moved(term, dim, (a - start, b - start)))


def moved(term: Term, dim: int, span: tuple[int, int]) -> Term:
    """The term with another span of its box in one dimension."""
    return replace(term, box=(*term.box[:dim], span, *term.box[dim + 1 :]))


def permuted(term: Term, dims: tuple[int, ...]) -> Term:
    """Dimension i is dimension dims[i] of before."""
    sides = tuple(term.sides[d] for d in dims)
    for side in ("A", "B"):
        now = [term.axis(d) for d in dims if term.sides[d] == side]
        if now != sorted(now):
            order = (0, *now) if side == "A" else (*now, len(now))
            term = term.changed(side, Permute(term.factor(side), order))
    return replace(term, sides=sides, box=tuple(term.box[d] for d in dims))


def widened(term: Term, dim: int, size: int, side: Side) -> Term:
    """The term with zeros around it, so that its box is [0, size) in a dimension. One that is of neither
    side becomes one of ``side``."""
    start, stop = term.box[dim]
    if (start, stop) == (0, size):
        return term
    if not term.sides[dim]:
        sides = (*term.sides[:dim], side, *term.sides[dim + 1 :])
        term = replace(term, sides=sides)
        at = term.axis(dim)
        shape = term.factor(side).spec.shape
        term = term.changed(side, Reshape(term.factor(side), (*shape[:at], 1, *shape[at:])))
    side = term.sides[dim]
    padded = Pad(term.factor(side), term.axis(dim), start, size - stop)
    return moved(term.changed(side, padded), dim, (0, size))


def narrowed(term: Term) -> Term:
    """Dimensions in which the box is one element wide belong to neither side."""
    for dim in reversed(range(len(term.sides))):
        side = term.sides[dim]
        if side and term.box[dim][1] - term.box[dim][0] == 1:
            at = term.axis(dim)
            shape = term.factor(side).spec.shape
            flat = Reshape(term.factor(side), (*shape[:at], *shape[at + 1 :]))
            term = replace(term.changed(side, flat), sides=(*term.sides[:dim], "", *term.sides[dim + 1 :]))
    return term
