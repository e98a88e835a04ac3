"""Ranks that a part of a weight has no use for are left out of its factors.

Factors that were laid beside each other are zero where they are not each other's: when the weight is cut
again every part has the ranks of all. Zeros are looked for in the values, so the files have to be there.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from remap.adapters.algebra.assemble import Factors, concat
from remap.expr import Expr, Reshape, Slice, takes
from remap.expr.boxes import whole

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def pruned(factors: Factors) -> Factors | None:
    """The factors without the ranks that are zero in A or in B; None where all are."""
    if any(t.entry.location is None for f in (factors.a, factors.b) for t in takes(f)):
        return factors
    rank, count = factors.rank, factors.a.spec.shape[0] // factors.rank
    a, b = _values(factors.a), _values(factors.b)
    used = (a.reshape(count, rank, -1) != 0).any((0, 2)) & (b.reshape(-1, rank, count) != 0).any((0, 2))
    kept = [n for n in range(rank) if used[n]]
    if not kept:
        return None
    if len(kept) == rank:
        return factors
    rows, columns = factors.a.spec.shape[1:], (factors.b.spec.shape[0], *factors.b.spec.shape[2:])
    return replace(
        factors,
        a=_picked(factors.a, (count, rank, *rows), 1, kept, (count * len(kept), *rows)),
        b=_picked(
            factors.b,
            (columns[0], rank, count, *columns[1:]),
            1,
            kept,
            (columns[0], len(kept) * count, *columns[1:]),
        ),
        rank=len(kept),
    )


def _values(factor: Expr) -> NDArray[np.generic]:
    from remap.expr.arrays import values
    from remap.expr.compute import compute

    found: NDArray[Any] = values(compute(factor, whole(factor)), factor.spec.dtype)
    return found


def _picked(factor: Expr, shape: tuple[int, ...], dim: int, kept: list[int], after: tuple[int, ...]) -> Expr:
    """Some places of a dimension of the factor, seen under ``shape``, as a tensor of the shape ``after``."""
    view = Reshape(factor, shape)
    parts: list[Expr] = []
    start = 0
    while start < len(kept):
        stop = start + 1
        while stop < len(kept) and kept[stop] == kept[stop - 1] + 1:
            stop += 1
        parts.append(Slice(view, dim, kept[start], kept[stop - 1] + 1))
        start = stop
    return Reshape(concat(parts, dim), after)
