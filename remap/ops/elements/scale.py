"""``scale`` multiplies every element, ``add_offset`` adds to it (norms stored as w or as 1 + w).

    do: {scale: {by: 0.5}}
    do: {add_offset: {by: 1.0, rounding: allowed}}

A power of two comes back bit for bit, short of overflow. Everything else rounds; the author who can live
with that says ``rounding: allowed``, and has an inverse that is right up to a rounding.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import frexp, isfinite

from remap.errors import PackError
from remap.expr import Affine
from remap.ops.arguments import Arguments
from remap.ops.base import NoInverse, Parts, Scope, Shape

SMALLEST = 2.0**-126
"""The least number that float32 holds with all its bits."""


@dataclass(frozen=True)
class ScaleOp:
    """Every element times ``by``."""

    by: float
    rounding: bool
    name: str = "scale"
    shape: Shape = "map"
    over: None = None
    symbols: frozenset[str] = frozenset()

    def build(self, parts: Parts, scope: Scope) -> Parts:
        return (Affine(parts[0], scale=self.by),)

    def inverse(self) -> ScaleOp | NoInverse:
        if not self.rounding and frexp(abs(self.by))[0] != 0.5:
            return NoInverse(f"{self.by:g} is no power of two, so it rounds; say rounding: allowed")
        return ScaleOp(1 / self.by, self.rounding)


@dataclass(frozen=True)
class AddOffsetOp:
    """Every element plus ``by``."""

    by: float
    rounding: bool
    name: str = "add_offset"
    shape: Shape = "map"
    over: None = None
    symbols: frozenset[str] = frozenset()

    def build(self, parts: Parts, scope: Scope) -> Parts:
        return (Affine(parts[0], offset=self.by),)

    def inverse(self) -> AddOffsetOp | NoInverse:
        if not self.rounding:
            return NoInverse("the addition rounds; say rounding: allowed")
        return AddOffsetOp(-self.by, self.rounding)


def _read(name: str, given: Mapping[str, object]) -> tuple[float, bool]:
    a = Arguments(name, given)
    by, rounding = a.number("by"), a.choice("rounding", ("allowed", "refused"), "refused")
    a.done()
    return by, rounding == "allowed"


def scale(given: Mapping[str, object]) -> ScaleOp:
    """Read ``scale``'s arguments."""
    by, rounding = _read("scale", given)
    if by == 0:
        raise PackError("scale: by: 0 leaves nothing")
    if not SMALLEST <= abs(by) <= 1 / SMALLEST:
        raise PackError(f"scale: by: {by:g} is beyond what float32 can undo", remedy="2**-126 to 2**126")
    return ScaleOp(by, rounding)


def add_offset(given: Mapping[str, object]) -> AddOffsetOp:
    """Read ``add_offset``'s arguments."""
    by, rounding = _read("add_offset", given)
    if not isfinite(by):
        raise PackError(f"add_offset: by: {by:g} is no number to add")
    return AddOffsetOp(by, rounding)
