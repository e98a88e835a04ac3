"""``replicated``: every rank has all of it (norms, buffers, adapters, an image encoder).

Ranks of a long run may have drifted apart; copies that differ are an error, unless one is chosen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from remap.expr import Affine, Expr, Same, Sum
from remap.partitions.base import Merging


@dataclass(frozen=True)
class Replicated:
    """See the module's docstring."""

    dim: None = None

    def merge(self, parts: Sequence[Expr], how: Merging) -> Expr:
        """The one copy that all are; that of rank 0, or the average, where that was chosen."""
        if len(parts) == 1 or how.copies == "first":
            return parts[0]
        if how.copies == "mean" and parts[0].spec.dtype.is_float:
            return Affine(Sum(tuple(parts)), 1 / len(parts))
        return Same(tuple(copy for p in parts for copy in (p.parts if isinstance(p, Same) else (p,))))

    def split(self, whole: Expr, ranks: int) -> Sequence[Expr]:
        """The tensor itself, for every rank."""
        return [whole] * ranks
