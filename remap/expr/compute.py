"""What a box of an expression is, as raw elements: moved, cast, added, multiplied, made."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from remap.dtypes import BY_NAME, DType
from remap.expr import ranges
from remap.expr.arrays import Raw, cast, data, raw_type, type_of, values
from remap.expr.boxes import flat, needed, rows_of, sizes, the
from remap.expr.nodes import (
    Affine,
    Cast,
    Concat,
    Constant,
    Expr,
    Normal,
    Pad,
    Permute,
    Reshape,
    Same,
    Slice,
    Sum,
    Take,
    takes,
)
from remap.expr.products import Box, Lengths, LowRank, Normed, Times
from remap.expr.stored import read
from remap.types import Derived

FLOAT32, FLOAT64 = BY_NAME["float32"], BY_NAME["float64"]


def compute(expr: Expr, box: Box) -> Raw:
    """The elements of ``box``, in any memory order. Raises Damaged where copies differ or a file ends too
    early, UsageError where only the key list is known."""
    if isinstance(expr, Take):
        derived = expr.entry.location
        return compute(derived.expr, box) if isinstance(derived, Derived) else read(expr, box)
    needs = needed(expr, box)
    if isinstance(expr, Slice):
        return compute(expr.of, the(needs[0]))
    if isinstance(expr, Permute):
        turned: Raw = compute(expr.of, the(needs[0])).transpose(expr.dims)
        return turned
    if isinstance(expr, Cast):
        return cast(_values(expr.of, the(needs[0])), expr.dtype)
    if isinstance(expr, Reshape):
        return _reshape(expr, box, compute(expr.of, the(needs[0])))
    if isinstance(expr, Concat):
        parts = [compute(p, need) for p, need in zip(expr.parts, needs, strict=True) if need is not None]
        return parts[0] if len(parts) == 1 else np.concatenate(parts, expr.dim)
    if isinstance(expr, Same):
        return _agreed(expr, box)
    if isinstance(expr, Affine):
        return _affine(expr, _values(expr.of, box))
    if isinstance(expr, Sum):
        return _sum(expr, box)
    if isinstance(expr, (LowRank, Times, Normed, Lengths)):
        factors = [_values(child, the(need)) for child, need in zip(expr.children, needs, strict=True)]
        return cast(expr.compute(box, [f.astype(np.float32) for f in factors]), expr.spec.dtype)
    if isinstance(expr, Normal):
        return _normal(expr, box)
    if isinstance(expr, Constant):
        return _full(box, expr.value, expr.spec.dtype)
    return _pad(expr, box)


def _values(expr: Expr, box: Box) -> NDArray[Any]:
    return values(compute(expr, box), expr.spec.dtype)


def _full(box: Box, value: float, dtype: DType) -> Raw:
    return np.full(sizes(box), value, type_of(dtype)).view(raw_type(dtype))


def _pad(expr: Pad, box: Box) -> Raw:
    out = _full(box, expr.value, expr.spec.dtype)
    (need,) = needed(expr, box)
    if need is not None:
        start = need[expr.dim][0] + expr.before - box[expr.dim][0]
        length = need[expr.dim][1] - need[expr.dim][0]
        place = (slice(None),) * expr.dim + (slice(start, start + length),)
        out[place] = compute(expr.of, need)
    return out


def _normal(expr: Normal, box: Box) -> Raw:
    """Row by row of the first dimension: row r of the tensor comes from the seed plus r. The generator is
    NumPy's legacy one, whose numbers no version will change (NEP 19)."""
    shape = expr.spec.shape
    inner = tuple(slice(a, b) for a, b in box[1:])
    rows = []
    for row in range(*box[0]) if shape else (0,):
        number = (expr.seed + row) % 2**63
        generator = np.random.RandomState([number >> 32, number & 0xFFFFFFFF])
        made = generator.standard_normal(shape[1:]) * expr.std
        rows.append(np.asarray(made)[inner])
    return cast(np.stack(rows) if shape else rows[0], expr.spec.dtype)


def _affine(expr: Affine, found: NDArray[Any]) -> Raw:
    """Each step rounded to the element type, as torch does."""
    dtype = expr.spec.dtype
    wide = np.float64 if dtype == FLOAT64 else np.float32
    if expr.scale != 1:
        found = values(cast(found.astype(wide) * wide(expr.scale), dtype), dtype)
    if expr.offset:
        found = values(cast(found.astype(wide) + wide(expr.offset), dtype), dtype)
    return found.view(raw_type(dtype))


def _sum(expr: Sum, box: Box) -> Raw:
    total = _values(expr.parts[0], box).astype(np.float64)
    for part in expr.parts[1:]:
        total += _values(part, box).astype(np.float64)
    return cast(total, expr.spec.dtype)


def _agreed(expr: Same, box: Box) -> Raw:
    """The first copy, after all others turned out to have its very bits."""
    first = compute(expr.parts[0], box)
    bits = np.asarray(data(first))
    odd = []
    for part in expr.parts[1:]:
        other = compute(part, box)
        if not np.array_equal(np.asarray(data(other)), bits):
            a, b = (values(raw, expr.spec.dtype).astype(np.float64) for raw in (other, first))
            odd.append(f"{_origin(part)} differs by up to {np.abs(a - b).max():.3g}")
    if odd:
        raise ranges.disagreement(_origin(expr.parts[0]), odd)
    return first


def _origin(expr: Expr) -> str:
    entry = next(takes(expr)).entry
    return f"{entry.location.file}: {entry.key}" if entry.location else entry.key


def _reshape(expr: Reshape, box: Box, rows: Raw) -> Raw:
    first, stop = flat(expr.spec.shape, box)
    skipped = flat(expr.of.spec.shape, rows_of(expr, box))[0]
    elements = rows.reshape(-1)[first - skipped : stop - skipped]
    if not expr.spec.shape:
        return elements.reshape(())
    out = elements.reshape(box[0][1] - box[0][0], *expr.spec.shape[1:])
    index = (slice(None), *(slice(a, b) for a, b in box[1:]))
    return out[index]
