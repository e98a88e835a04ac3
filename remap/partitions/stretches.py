"""``rows(units)``, ``columns(units)``, ``innermost(units)``: each rank has a stretch of dimension 0, 1 or 2.

Column-parallel layers have rows of the weight and of the bias, row-parallel ones columns of the weight:
torch keeps a weight as [out, in]. ``units`` (``heads``) is how many equal things lie along the dimension;
a rank has whole ones. Without units any equal parts do. Per-head interleaved queries, keys and values are
rows of heads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from remap.expr import Concat, Expr
from remap.partitions.base import Merging, Size, cut


@dataclass(frozen=True)
class Stretches:
    """Rows (``dim`` 0), columns (``dim`` 1), or the columns of every expert (``dim`` 2)."""

    dim: int
    units: Size | None = None

    def merge(self, parts: Sequence[Expr], how: Merging) -> Expr:
        """The stretches, joined."""
        return parts[0] if len(parts) == 1 else Concat(tuple(parts), self.dim)

    def split(self, whole: Expr, ranks: int) -> Sequence[Expr]:
        """Equal stretches of whole units."""
        if ranks == 1:
            return [whole]
        if self.units is not None:
            self.units.each(ranks)
        return cut(whole, self.dim, ranks)


def rows(units: Size | None = None) -> Stretches:
    """``rows``, ``rows(heads)``."""
    return Stretches(0, units)


def columns(units: Size | None = None) -> Stretches:
    """``columns``, ``columns(heads)``."""
    return Stretches(1, units)


def innermost(units: Size | None = None) -> Stretches:
    """``innermost``: columns of each expert in a tensor of experts, [experts, hidden, inner]."""
    return Stretches(2, units)
