"""Nodes that multiply, all in float32: what an adapter adds to a weight is made of these.

LowRank  the product of two factors, times a number; leading dimensions are a batch (experts)
Times    element by element, the second factor stretched along its dimensions of size 1
Normed   a matrix whose rows have their directions from one tensor and their lengths from another
Lengths  the lengths of a matrix' rows

Each says which boxes of its children a box of it takes (``needs``), and makes it of them (``compute``).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from remap.dtypes import BY_NAME
from remap.errors import UsageError
from remap.types import TensorSpec

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from remap.expr.nodes import Expr

    Floats = NDArray[np.float32]

Box = tuple[tuple[int, int], ...]
FLOAT32 = BY_NAME["float32"]


@dataclass(frozen=True, slots=True)
class LowRank:
    """``scale * left @ right``: [..., n, r] and [..., r, m] -> float32 [..., n, m]."""

    left: Expr
    right: Expr
    scale: float = 1.0
    spec: TensorSpec = field(init=False)

    def __post_init__(self) -> None:
        a, b = self.left.spec, self.right.spec
        _check_floats(a, b)
        fits = (
            len(a.shape) == len(b.shape) >= 2 and a.shape[:-2] == b.shape[:-2] and a.shape[-1] == b.shape[-2]
        )
        if not fits:
            raise UsageError(f"product of matrices of shapes {list(a.shape)} and {list(b.shape)}")
        _set(self, (*a.shape[:-1], b.shape[-1]))

    @property
    def children(self) -> tuple[Expr, ...]:
        return (self.left, self.right)

    def needs(self, box: Box) -> list[Box | None]:
        """Rows of the one, columns of the other."""
        rank = (0, self.left.spec.shape[-1])
        return [(*box[:-1], rank), (*box[:-2], rank, box[-1])]

    def compute(self, box: Box, parts: Sequence[Floats]) -> Floats:
        """The box of the product."""
        product: Floats = parts[0] @ parts[1]
        return product * self.scale if self.scale != 1 else product


@dataclass(frozen=True, slots=True)
class Times:
    """``of * by``, of equal dimensions but for those where ``by`` has size 1 -> float32."""

    of: Expr
    by: Expr
    spec: TensorSpec = field(init=False)

    def __post_init__(self) -> None:
        a, b = self.of.spec, self.by.spec
        _check_floats(a, b)
        if len(a.shape) != len(b.shape) or any(
            m not in (n, 1) for n, m in zip(a.shape, b.shape, strict=True)
        ):
            raise UsageError(f"product of shapes {list(a.shape)} and {list(b.shape)}")
        _set(self, a.shape)

    @property
    def children(self) -> tuple[Expr, ...]:
        return (self.of, self.by)

    def needs(self, box: Box) -> list[Box | None]:
        """The same box of both, where the second is not stretched."""
        stretched = self.by.spec.shape
        return [box, tuple((0, 1) if n == 1 else span for n, span in zip(stretched, box, strict=True))]

    def compute(self, box: Box, parts: Sequence[Floats]) -> Floats:
        """The box of the product."""
        return parts[0] * parts[1]


@dataclass(frozen=True, slots=True)
class Normed:
    """``of`` [n, m] with every row scaled to the Euclidean length in ``lengths`` [n, 1] -> float32."""

    of: Expr
    lengths: Expr
    spec: TensorSpec = field(init=False)

    def __post_init__(self) -> None:
        a, b = self.of.spec, self.lengths.spec
        _check_floats(a, b)
        if len(a.shape) != 2 or b.shape != (a.shape[0], 1):
            raise UsageError(f"lengths of shape {list(b.shape)} for the rows of {list(a.shape)}")
        _set(self, a.shape)

    @property
    def children(self) -> tuple[Expr, ...]:
        return (self.of, self.lengths)

    def needs(self, box: Box) -> list[Box | None]:
        """Whole rows: their lengths are not known otherwise."""
        return [(box[0], (0, self.of.spec.shape[1])), (box[0], (0, 1))]

    def compute(self, box: Box, parts: Sequence[Floats]) -> Floats:
        """The box of the scaled matrix."""
        rows = parts[0]
        factors = parts[1] / lengths(rows)
        found: Floats = factors * rows[:, box[1][0] : box[1][1]]
        return found


@dataclass(frozen=True, slots=True)
class Lengths:
    """The Euclidean length of every row: ``of`` [n, m] -> float32 [n, 1]."""

    of: Expr
    spec: TensorSpec = field(init=False)

    def __post_init__(self) -> None:
        _check_floats(self.of.spec)
        if len(self.of.spec.shape) != 2:
            raise UsageError(f"lengths of the rows of a tensor of shape {list(self.of.spec.shape)}")
        _set(self, (self.of.spec.shape[0], 1))

    @property
    def children(self) -> tuple[Expr, ...]:
        return (self.of,)

    def needs(self, box: Box) -> list[Box | None]:
        """Whole rows."""
        return [(box[0], (0, self.of.spec.shape[1]))]

    def compute(self, box: Box, parts: Sequence[Floats]) -> Floats:
        """The box of the lengths."""
        return lengths(parts[0])[:, box[1][0] : box[1][1]]


def lengths(rows: Floats) -> Floats:
    """[n, m] -> [n, 1]"""
    found: Floats = (rows * rows).sum(axis=1, keepdims=True) ** 0.5
    return found


def _check_floats(*specs: TensorSpec) -> None:
    odd = [s.dtype.name for s in specs if not s.dtype.is_float]
    if odd:
        raise UsageError(f"arithmetic on elements of type {odd[0]}")


def _set(node: LowRank | Times | Normed | Lengths, shape: tuple[int, ...]) -> None:
    object.__setattr__(node, "spec", TensorSpec(FLOAT32, shape))
