"""A class that can't be told: whatever is asked of it, several ranks are refused with the reason."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from remap.errors import UsageError
from remap.expr import Expr
from remap.partitions.base import Merging


@dataclass(frozen=True)
class Undecided:
    """``dim`` is the same for all that it may be."""

    why: str
    remedy: str
    dim: int | None = None

    def merge(self, parts: Sequence[Expr], how: Merging) -> Expr:
        """One rank's tensor is the whole one; more are refused."""
        if len(parts) > 1:
            raise UsageError(self.why, remedy=self.remedy)
        return parts[0]

    def split(self, whole: Expr, ranks: int) -> Sequence[Expr]:
        """One rank has the whole tensor; more are refused."""
        if ranks > 1:
            raise UsageError(self.why, remedy=self.remedy)
        return [whole]
