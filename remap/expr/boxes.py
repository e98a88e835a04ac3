"""Boxes: which part of each child a part of a node is made of. Nothing is read or computed here.

A box is a start and a stop in each dimension.
"""

from __future__ import annotations

from math import prod

from remap.expr.nodes import Affine, Cast, Concat, Expr, Pad, Permute, Reshape, Same, Slice, Sum
from remap.expr.products import Box, Lengths, LowRank, Normed, Times


def whole(expr: Expr) -> Box:
    """All of it."""
    return tuple((0, n) for n in expr.spec.shape)


def sizes(box: Box) -> tuple[int, ...]:
    """The shape of a box."""
    return tuple(b - a for a, b in box)


def nbytes(expr: Expr, box: Box) -> int:
    """Bytes of a box of ``expr``."""
    return prod(sizes(box)) * expr.spec.dtype.itemsize


def the(box: Box | None) -> Box:
    """A box that is needed in any case."""
    assert box is not None
    return box


def needed(expr: Expr, box: Box) -> list[Box | None]:
    """For each child, the box of it that ``box`` of ``expr`` is made of; None where it needs none."""
    if isinstance(expr, Slice):
        return [_along(box, expr.dim, box[expr.dim][0] + expr.start, box[expr.dim][1] + expr.start)]
    if isinstance(expr, Permute):
        return [tuple(box[expr.dims.index(d)] for d in range(len(box)))]
    if isinstance(expr, (Cast, Same, Affine, Sum)):
        return [box for _ in expr.children]
    if isinstance(expr, (LowRank, Times, Normed, Lengths)):
        return expr.needs(box)
    if isinstance(expr, Reshape):
        return [rows_of(expr, box)]
    if isinstance(expr, Pad):
        return [_clipped(box, expr.dim, expr.before, expr.of.spec.shape[expr.dim])]
    if isinstance(expr, Concat):
        needs: list[Box | None] = []
        start = 0
        for part in expr.parts:
            needs.append(_clipped(box, expr.dim, start, part.spec.shape[expr.dim]))
            start += part.spec.shape[expr.dim]
        return needs
    return []


def _along(box: Box, dim: int, start: int, stop: int) -> Box:
    return (*box[:dim], (start, stop), *box[dim + 1 :])


def _clipped(box: Box, dim: int, start: int, size: int) -> Box | None:
    """The part of ``box`` that falls on a child lying at ``start`` along ``dim``, in its own count."""
    a, b = max(box[dim][0] - start, 0), min(box[dim][1] - start, size)
    return _along(box, dim, a, b) if a < b else None


def rows_of(expr: Reshape, box: Box) -> Box:
    """The rows of the child that hold the elements of the rows of ``box``."""
    first, stop = flat(expr.spec.shape, box)
    shape = expr.of.spec.shape
    if not shape:
        return ()
    inner = max(1, prod(shape[1:]))
    return ((first // inner, -(-stop // inner)), *((0, n) for n in shape[1:]))


def flat(shape: tuple[int, ...], box: Box) -> tuple[int, int]:
    """Row-major interval covered by the rows of ``box``, the other dimensions taken whole."""
    if not shape:
        return 0, 1
    inner = prod(shape[1:])
    return box[0][0] * inner, box[0][1] * inner
