"""``cast`` changes the element type: ``do: {cast: {to: f32, from: bf16}}``.

Widening comes back bit for bit, if ``from`` says to what. Narrowing rounds, and has no inverse.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from remap.dtypes import DType
from remap.errors import UsageError
from remap.expr import Cast
from remap.ops.arguments import Arguments
from remap.ops.base import NoInverse, Parts, Scope, Shape

WIDER = {
    "bfloat16": ("float32", "float64"),
    "float16": ("float32", "float64"),
    "float32": ("float64",),
    "float8_e4m3fn": ("float16", "bfloat16", "float32", "float64"),
    "float8_e5m2": ("float16", "bfloat16", "float32", "float64"),
    "uint8": ("int16", "int32", "int64"),
    "bool": ("uint8", "int8", "int16", "int32", "int64"),
    "int8": ("int16", "int32", "int64"),
    "int16": ("int32", "int64"),
    "int32": ("int64",),
}
"""Element type -> those that hold all of its values."""


@dataclass(frozen=True)
class CastOp:
    """Every element as ``to``."""

    to: DType
    before: DType | None
    name: str = "cast"
    shape: Shape = "map"
    over: None = None
    symbols: frozenset[str] = frozenset()

    def build(self, parts: Parts, scope: Scope) -> Parts:
        (part,) = parts
        if self.before is not None and part.spec.dtype != self.before:
            raise UsageError(f"cast from {self.before.name} of a tensor of {part.spec.dtype.name}")
        return (Cast(part, self.to),)

    def inverse(self) -> CastOp | NoInverse:
        if self.before is None:
            return NoInverse("the type before is not stated; say from:")
        if self.to.name not in WIDER.get(self.before.name, ()):
            return NoInverse(f"{self.to.name} does not hold every value of {self.before.name}")
        return CastOp(self.before, self.to)


def cast(given: Mapping[str, object]) -> CastOp:
    """Read ``cast``'s arguments."""
    a = Arguments("cast", given)
    to, before = a.maybe_dtype("to"), a.maybe_dtype("from")
    a.done()
    if to is None:
        raise a.wrong("to", "an element type")
    return CastOp(to, before)
