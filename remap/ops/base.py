"""What an operation is: parts in, parts out, and the way back.

An op sees expressions, never tensors, so that shape and dtype are inferred by the very nodes that are
evaluated later. Parts lie in a grid: one axis for the templates of a rule's ``from`` (or ``to``) list,
one for each capture that stands on one side only (the experts of a layer). An op works along one axis:
it takes the parts of that axis and gives others, or one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, Union

from remap.expr import Expr

Parts = tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class NoInverse:
    """Why an op can't be undone."""

    reason: str


@dataclass(frozen=True, slots=True)
class Scope:
    """What an op may ask while it builds.

    sizes   the pack's whole-number parameters: sizes are symbols
    wanted  how many parts must come out
    """

    sizes: Mapping[str, int]
    wanted: int


class Op(Protocol):
    """One operation with its arguments."""

    @property
    def name(self) -> str:
        """What it is called in a pack and in a plan."""

    @property
    def over(self) -> str | None:
        """The capture along which it works; None for the templates of the rule's list."""

    @property
    def symbols(self) -> frozenset[str]:
        """The parameters that its sizes name."""

    @property
    def joins(self) -> bool:
        """Does it make one part of many?"""

    @property
    def cuts(self) -> bool:
        """Does it make many parts of one?"""

    def build(self, parts: Parts, scope: Scope) -> Parts:
        """The outputs as expressions. Raises UsageError where shapes don't fit."""

    def inverse(self) -> Union[Op, NoInverse]:
        """The op that undoes it, or why there is none."""
