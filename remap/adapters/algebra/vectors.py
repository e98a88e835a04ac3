"""A vector of numbers for the rows, or for the columns, of a weight, along the weight's expression.

DoRA keeps a length for every row, IA3 a factor for every row or column, LoRA with a bias an offset for every
row. The vector lies as the weight does, with the other dimension 1 element wide, and what the expression does
to rows it does to the vector. What it does along the other dimension is allowed or not, by what the vector
means (``Meaning``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from remap.adapters.algebra.reshape import groups
from remap.adapters.algebra.terms import NotLowRank
from remap.expr import Affine, Cast, Concat, Constant, Expr, Pad, Permute, Reshape, Same, Slice, Sum, Take
from remap.types import TensorSpec

Across = Literal["refused", "alike"]


@dataclass(frozen=True)
class Meaning:
    """What a vector says of its rows.

    name    in messages
    fill    what stands for rows that have none; None where nothing can
    across  may the weight be cut and joined along the other dimension?
    scaled  what becomes of it where the weight is multiplied by a number
    """

    name: str
    fill: float | None
    across: Across
    scaled: Literal["absolute", "unchanged", "times"]


LENGTHS = Meaning("DoRA's lengths of rows", None, "refused", "absolute")
FACTORS = Meaning("IA3's factors", 1.0, "alike", "unchanged")
OFFSETS = Meaning("the bias of lora_B", 0.0, "refused", "times")


@dataclass(frozen=True)
class Vector:
    """The vector, and the dimension that is 1 element wide."""

    expr: Expr
    thin: int


Known = Callable[[str], Vector | None]
"""Key of a base weight -> its vector; None where it has none."""


def along(expr: Expr, known: Known, meaning: Meaning) -> Vector | None:
    """The vector of ``expr``; None where no weight in it has one. Raises NotLowRank."""
    if isinstance(expr, Take):
        return known(expr.entry.key)
    parts = [along(child, known, meaning) for child in expr.children]
    if not any(parts):
        return None
    if isinstance(expr, (Concat, Sum)):
        return _joined(expr, parts, meaning)
    first = parts[0]
    if first is None:
        raise NotLowRank(f"copies that become one tensor differ in {meaning.name}")
    if isinstance(expr, Cast):
        return first
    if isinstance(expr, Same):
        if any(p != first for p in parts[1:]):
            raise NotLowRank(f"copies that become one tensor differ in {meaning.name}")
        return first
    if isinstance(expr, Affine):
        return _scaled(expr, first, meaning)
    if isinstance(expr, Slice):
        return _cut(expr, first, meaning)
    if isinstance(expr, Pad):
        return _padded(expr, first, meaning)
    if isinstance(expr, Permute):
        return Vector(Permute(first.expr, expr.dims), expr.dims.index(first.thin))
    if isinstance(expr, Reshape):
        return _reshaped(expr, first, meaning)
    raise NotLowRank("the weight is already a product")


def _joined(expr: Concat | Sum, parts: Sequence[Vector | None], meaning: Meaning) -> Vector:
    first = next(p for p in parts if p)
    if any(p.thin != first.thin for p in parts if p):
        raise NotLowRank("some parts are transposed and some are not")
    if isinstance(expr, Sum) or expr.dim == first.thin:
        if meaning.across == "refused" or any(p != first for p in parts):
            raise NotLowRank(f"{meaning.name} of several weights meet in one")
        return first
    filled = []
    for part, child in zip(parts, expr.parts, strict=True):
        if part is None and meaning.fill is None:
            raise NotLowRank(f"{meaning.name} are known of some parts only")
        shape = (*child.spec.shape[: first.thin], 1, *child.spec.shape[first.thin + 1 :])
        spec = TensorSpec(first.expr.spec.dtype, shape)
        filled.append(part.expr if part else Constant(spec, meaning.fill or 0.0))
    return Vector(Concat(tuple(filled), expr.dim), first.thin)


def _scaled(expr: Affine, vector: Vector, meaning: Meaning) -> Vector:
    if expr.offset and meaning.scaled != "times":
        raise NotLowRank(f"{meaning.name} of a weight to which a number is added")
    if meaning.scaled == "unchanged" or expr.scale == 1:
        return vector
    by = abs(expr.scale) if meaning.scaled == "absolute" else expr.scale
    return Vector(Affine(vector.expr, by), vector.thin)


def _cut(expr: Slice, vector: Vector, meaning: Meaning) -> Vector:
    if expr.dim != vector.thin:
        return Vector(Slice(vector.expr, expr.dim, expr.start, expr.stop), vector.thin)
    if meaning.across == "refused" and expr.spec != expr.of.spec:
        raise NotLowRank(f"{meaning.name} of a part of each row are not known")
    return vector


def _padded(expr: Pad, vector: Vector, meaning: Meaning) -> Vector:
    if expr.dim == vector.thin:
        if expr.value and meaning.across == "refused":
            raise NotLowRank(f"{meaning.name} of longer rows are not known")
        return vector
    if meaning.fill is None:
        raise NotLowRank(f"{meaning.name} of new rows are not known")
    return Vector(Pad(vector.expr, expr.dim, expr.before, expr.after, meaning.fill), vector.thin)


def _reshaped(expr: Reshape, vector: Vector, meaning: Meaning) -> Vector:
    at = 0
    for group in groups(expr.of.spec.shape, expr.shape):
        if group.first <= vector.thin < group.last:
            if group.before != group.after:
                raise NotLowRank(f"{meaning.name} of rows and columns that are merged")
            shape = (*expr.shape[:at], 1, *expr.shape[at + 1 :])
            return Vector(Reshape(vector.expr, shape), at)
        at += len(group.after)
    raise NotLowRank(f"{meaning.name} of a dimension that is gone")
