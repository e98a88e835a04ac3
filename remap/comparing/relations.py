"""What two tensors have to do with each other: one is the other cast, transposed, permuted, scaled, or not.

Everything is found by looking at all elements, block by block; what is said of bytes is said of all of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import permutations
from typing import TYPE_CHECKING, Any, NamedTuple

import xxhash

from remap.comparing.digests import digest
from remap.expr import Cast, Expr, Permute, blocks
from remap.expr.boxes import whole
from remap.stream.read import read_expr

if TYPE_CHECKING:
    from numpy.typing import NDArray

BLOCK = 8 << 20
"""Bytes looked at together."""

MOST_ROWS = 4_000_000
"""Rows whose order is looked for."""

MOST_DIMS = 4
"""Dimensions of which every order is tried."""


class Relation(NamedTuple):
    """``verdict``: cast, transposed, reshaped, rows permuted, scaled, values, dtype or shape; ``detail`` has
    both sides, and how much they differ."""

    verdict: str
    detail: str


def relate(a: Expr, b: Expr) -> Relation:
    """How two tensors that are not equal differ."""
    both = f"{a.spec} and {b.spec}" if a.spec != b.spec else str(a.spec)
    return _exact(a, b, both) or _rows(a, b, both) or _numbers(a, b, both) or unlike(a, b)


def unlike(a: Expr, b: Expr) -> Relation:
    """What their headers alone say of two tensors that differ there."""
    verdict = "shape" if a.spec.shape != b.spec.shape else "dtype"
    return Relation(verdict, f"{a.spec} and {b.spec}")


def _exact(a: Expr, b: Expr, both: str) -> Relation | None:
    """One is the other, moved or cast: their bytes say so."""
    if a.spec.numel != b.spec.numel:
        return None
    left, right = digest(a), digest(b)
    if a.spec.dtype == b.spec.dtype and left == right:
        return Relation("reshaped", f"{both}: the same elements in the same order")
    if a.spec.shape == b.spec.shape and a.spec.dtype != b.spec.dtype:
        floats = a.spec.dtype.is_float and b.spec.dtype.is_float
        if digest(Cast(a, b.spec.dtype)) == right or (floats and digest(Cast(b, a.spec.dtype)) == left):
            return Relation("cast", f"{both}: the same but for the rounding")
    for order in _orders(a, b):
        turned: Expr = Permute(a, order)
        cast = a.spec.dtype != b.spec.dtype
        if digest(Cast(turned, b.spec.dtype) if cast else turned) == right:
            return Relation("transposed", f"{both}: dimensions {list(order)} of A" + ", cast" * cast)
    return None


def _orders(a: Expr, b: Expr) -> Iterator[tuple[int, ...]]:
    """Orders of the dimensions of ``a`` that give the shape of ``b``."""
    shape = a.spec.shape
    if 2 <= len(shape) == len(b.spec.shape) <= MOST_DIMS:
        for order in permutations(range(len(shape))):
            if tuple(shape[d] for d in order) == b.spec.shape and order != tuple(range(len(shape))):
                yield order


def _rows(a: Expr, b: Expr, both: str) -> Relation | None:
    """The same rows in another order."""
    if a.spec != b.spec or not a.spec.shape or not 1 < a.spec.shape[0] <= MOST_ROWS:
        return None
    if _hashes(a) != _hashes(b):
        return None
    return Relation("rows permuted", f"{both}: the same rows in another order")


def _hashes(expr: Expr) -> Counter[int]:
    """How often each row is there, by its hash."""
    size = expr.spec.nbytes // expr.spec.shape[0]
    found: Counter[int] = Counter()
    rest = b""
    for data in read_expr(expr, BLOCK):
        rest += bytes(data)
        stop = len(rest) // size * size
        found.update(xxhash.xxh3_64_intdigest(rest[i : i + size]) for i in range(0, stop, size))
        rest = rest[stop:]
    return found


@dataclass
class _Sums:
    """Over all elements: those that differ, the largest and the sum of the differences, and what a factor is
    made of."""

    differ: int = 0
    most: float = 0.0
    total: float = 0.0
    largest: float = 0.0
    ab: float = 0.0
    aa: float = 0.0


def _numbers(a: Expr, b: Expr, both: str) -> Relation | None:
    """By how much they differ, or that one is the other times a number."""
    names = (a.spec.dtype.name, b.spec.dtype.name)
    if a.spec.shape != b.spec.shape or any(n.startswith("complex") for n in names):
        return None
    import numpy as np

    sums = _Sums()
    with np.errstate(all="ignore"):
        for x, y in _pairs(a, b):
            apart = np.abs(x - y)
            apart[(x == y) | (np.isnan(x) & np.isnan(y))] = 0
            apart[np.isnan(apart)] = np.inf
            sums.differ += int(np.count_nonzero(apart))
            sums.most = max(sums.most, float(apart.max(initial=0)))
            sums.total += float(apart.sum())
            sums.largest = max(sums.largest, float(np.abs(x).max(initial=0)))
            sums.ab += float((x * y).sum())
            sums.aa += float((x * x).sum())
    factor = _factor(a, b, sums)
    if factor is not None:
        return Relation("scaled", f"{both}: B is A times {factor:.6g}")
    if not sums.differ:
        return Relation("values", f"{both}: the same numbers in other bits (zeros with a sign, NaN)")
    return Relation(
        "values",
        f"{both}: {sums.differ} of {a.spec.numel} elements, by up to {sums.most:.3g}, on average "
        f"{sums.total / a.spec.numel:.3g}; the largest in A is {sums.largest:.3g}",
    )


def _factor(a: Expr, b: Expr, sums: _Sums) -> float | None:
    """The number that A is to be multiplied with, where one will do for all elements but for a rounding."""
    import numpy as np

    floats = a.spec.dtype.is_float and b.spec.dtype.is_float
    if not (floats and a.spec.numel > 1 and sums.aa and np.isfinite(sums.most)):
        return None
    factor = sums.ab / sums.aa
    (step, _), (other, smallest) = _limits(a), _limits(b)
    step = 2 * max(step, other)
    if not factor or abs(factor - 1) <= step:
        return None
    for x, y in _pairs(a, b):
        near = np.abs(y - factor * x) <= step * np.abs(y) + smallest
        if not near.all():
            return None
    return factor


def _limits(expr: Expr) -> tuple[float, float]:
    """How far apart the numbers of a type are, beside 1 and beside 0."""
    import ml_dtypes

    from remap.expr.arrays import type_of

    found = ml_dtypes.finfo(type_of(expr.spec.dtype))  # type: ignore[no-untyped-call]
    return float(found.eps), float(found.smallest_subnormal)


def _pairs(a: Expr, b: Expr) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
    """The elements of both as float64, some at a time."""
    for box in blocks.boxes(a, BLOCK) if a.spec.numel else ():
        yield _values(a, box), _values(b, box)


def _values(expr: Expr, box: Any) -> NDArray[Any]:
    import numpy as np

    from remap.expr.arrays import raw_type, values

    raw = np.frombuffer(blocks.block(expr, box or whole(expr)), raw_type(expr.spec.dtype))
    return values(raw, expr.spec.dtype).astype(np.float64)
