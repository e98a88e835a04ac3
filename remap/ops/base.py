"""What an operation is: parts in, parts out, and the way back.

An op sees expressions, never tensors, so that shape and dtype are inferred by the very nodes that are
evaluated later. Parts lie in a grid: one axis for the templates of a rule's ``from`` (or ``to``) list,
one for each capture that stands on one side only (the experts of a layer). A ``join`` makes one part of
all along an axis, a ``cut`` many of one, and a ``map`` changes every part by itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Protocol, Union

from remap.expr import Expr

Parts = tuple[Expr, ...]
Shape = Literal["map", "join", "cut"]


@dataclass(frozen=True, slots=True)
class NoInverse:
    """Why an op can't be undone."""

    reason: str


@dataclass(frozen=True, slots=True)
class Scope:
    """What an op may ask while it builds.

    sizes   the pack's whole-number parameters: sizes are symbols
    wanted  how many parts a cut must give; None where the op decides (the experts in one tensor)
    """

    sizes: Mapping[str, int]
    wanted: int | None = None


class Op(Protocol):
    """One operation with its arguments."""

    @property
    def name(self) -> str:
        """What it is called in a pack and in a plan."""

    @property
    def shape(self) -> Shape:
        """What it does to the number of parts."""

    @property
    def over(self) -> str | None:
        """The capture along which it joins or cuts; None for the templates of the rule's list."""

    @property
    def symbols(self) -> frozenset[str]:
        """The parameters that its sizes name."""

    def build(self, parts: Parts, scope: Scope) -> Parts:
        """The outputs as expressions. Raises UsageError where shapes don't fit."""

    def inverse(self) -> Union[Op, NoInverse]:
        """The op that undoes it, or why there is none."""
