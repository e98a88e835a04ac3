"""Terms of a reshaped tensor: dimensions are merged and split within the sides of the factors.

Row-major order makes groups of dimensions before and after with one product. A group whose dimensions
are of one side is merged and split in that factor; one of both sides has no factors any more.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import prod

from remap.adapters.algebra.terms import NotLowRank, Side, Term, narrowed, widened
from remap.expr import Reshape

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Group:
    """Dimensions [first, last) of the shape before are the sizes ``after``."""

    first: int
    last: int
    before: Shape
    after: Shape


def groups(before: Shape, after: Shape) -> Iterator[Group]:
    """The smallest groups of dimensions whose products are equal, in order; a 1 that comes or goes is a
    group by itself."""
    i = j = 0
    while i < len(before) or j < len(after):
        first, start = i, j
        if i < len(before) and before[i] == 1:
            i += 1
        elif j < len(after) and after[j] == 1:
            j += 1
        else:
            left, right, i, j = before[i], after[j], i + 1, j + 1
            while left != right:
                if left < right:
                    left, i = left * before[i], i + 1
                else:
                    right, j = right * after[j], j + 1
        yield Group(first, i, before[first:i], after[start:j])


def reshaped(term: Term, before: Shape, after: Shape) -> Term:
    """The term of a tensor under another shape. Raises NotLowRank."""
    found = list(groups(before, after))
    for group in reversed(found):  # from behind, so that the places of those before stay
        if not group.before or not group.after:
            term = _one(term, group)
        elif group.before != group.after:
            term = _split(_merged(term, group), group.first, group.after)
    return narrowed(term)


def _one(term: Term, group: Group) -> Term:
    """A dimension of size 1 comes or goes."""
    at, last = group.first, group.last
    box: tuple[tuple[int, int], ...] = tuple((0, 1) for _ in group.after)
    sides: tuple[Side, ...] = tuple("" for _ in group.after)
    return replace(
        term,
        box=(*term.box[:at], *box, *term.box[last:]),
        sides=(*term.sides[:at], *sides, *term.sides[last:]),
    )


def _merged(term: Term, group: Group) -> Term:
    """The dimensions of the group as one."""
    dims = range(group.first, group.last)
    if len(dims) == 1:
        return term
    sides = {term.sides[d] for d in dims} - {""}
    if len(sides) > 1:
        raise NotLowRank("rows and columns of the weight are merged into one dimension")
    side: Side = sides.pop() if sides else ""
    term = _contiguous(term, group, side)
    start = 0
    for d in dims:
        start = start * group.before[d - group.first] + term.box[d][0]
    length = prod(term.box[d][1] - term.box[d][0] for d in dims)
    joined = {d for d in dims if term.sides[d]}
    if joined:
        side = term.sides[min(joined)]
        at = term.axis(min(joined))
        shape = term.factor(side).spec.shape
        flat = Reshape(term.factor(side), (*shape[:at], length, *shape[at + len(joined) :]))
        term = term.changed(side, flat)
    merged: Side = side if joined else ""
    sides_after = (*term.sides[: group.first], merged, *term.sides[group.last :])
    box = (*term.box[: group.first], (start, start + length), *term.box[group.last :])
    return replace(term, sides=sides_after, box=box)


def _contiguous(term: Term, group: Group, side: Side) -> Term:
    """The term with zeros around it, so that its box is one stretch of the merged dimension."""
    widths = [b - a for a, b in term.box[group.first : group.last]]
    lead = next((n for n, w in enumerate(widths) if w > 1), len(widths))
    for n in range(lead + 1, len(widths)):
        term = widened(term, group.first + n, group.before[n], side)
    return term


def _split(term: Term, dim: int, after: Shape) -> Term:
    """One dimension as several."""
    start, stop = term.box[dim]
    side = term.sides[dim]
    size = prod(after)
    inner = prod(after[1:])
    if not side:
        spans = _places(start, after)
    elif len(after) == 1:
        return term
    elif start % inner == stop % inner == 0:
        spans = [(start // inner, stop // inner), *((0, n) for n in after[1:])]
    else:
        term = widened(term, dim, size, side)
        spans = [(0, n) for n in after]
    if side:
        at = term.axis(dim)
        shape = term.factor(side).spec.shape
        sizes = tuple(b - a for a, b in spans)
        term = term.changed(side, Reshape(term.factor(side), (*shape[:at], *sizes, *shape[at + 1 :])))
    sides = (*term.sides[:dim], *(side for _ in after), *term.sides[dim + 1 :])
    return replace(term, sides=sides, box=(*term.box[:dim], *spans, *term.box[dim + 1 :]))


def _places(index: int, after: Shape) -> list[tuple[int, int]]:
    """The box of one element of the dimension."""
    spans: list[tuple[int, int]] = []
    for n in reversed(after):
        spans.append((index % n, index % n + 1))
        index //= n
    return spans[::-1]
