"""What a partition class is: N ranks' tensors are one tensor, and one tensor is M ranks'.

Classes see expressions, never tensors: what only moves bytes lowers to byte ranges, and shapes are checked
before anything is read. A class holds the sizes that it needs (heads) as a layout or a rule spells them; one
without a value is asked for when it is needed, not before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from remap.errors import UsageError
from remap.expr import Expr, Slice

Copies = Literal["error", "first", "mean"]
"""What replicated copies that differ become: an error when they are read, that of rank 0, their average."""


@dataclass(frozen=True, slots=True)
class Size:
    """A size as it is spelled (``heads``), and its value, None where it is not known."""

    text: str
    value: int | None

    @property
    def known(self) -> int:
        """The value. Raises UsageError where there is none."""
        if self.value is None:
            raise UsageError(f"{self.text} has no value", remedy=f"give it: -p {self.text}=...")
        return self.value

    def each(self, ranks: int) -> int:
        """How many of them a rank has: whole ones. Raises UsageError."""
        if self.known % ranks:
            raise UsageError(
                f"{self.known} {self.text} can't be divided over {ranks} ranks: each has whole ones",
                remedy=f"take a number of ranks that divides {self.known}",
            )
        return self.known // ranks


@dataclass(frozen=True, slots=True)
class Merging:
    """How ranks are merged.

    copies  what copies that differ become
    padded  keep the padding that was added for the ranks' sake
    """

    copies: Copies = "error"
    padded: bool = False


class Partition(Protocol):
    """One way to divide a tensor."""

    @property
    def dim(self) -> int | None:
        """The dimension along which ranks follow one another; None where each has the whole shape."""

    def merge(self, parts: Sequence[Expr], how: Merging) -> Expr:
        """The whole tensor of the ranks' equally shaped ones. Raises UsageError."""

    def split(self, whole: Expr, ranks: int) -> Sequence[Expr]:
        """Every rank's tensor. Raises UsageError where there are no equal parts."""


def cut(whole: Expr, dim: int, ranks: int) -> list[Expr]:
    """Equal stretches along ``dim``. Raises UsageError."""
    shape = whole.spec.shape
    if dim >= len(shape):
        raise UsageError(f"a tensor of shape {list(shape)} has no dimension {dim} to be divided along")
    if shape[dim] % ranks:
        raise UsageError(f"dimension {dim} has {shape[dim]} elements, no multiple of {ranks}")
    step = shape[dim] // ranks
    return [Slice(whole, dim, r * step, (r + 1) * step) for r in range(ranks)]
