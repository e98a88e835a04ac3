"""``interleave`` joins parts by turns along a dimension, ``deinterleave`` takes them apart.

from: ["{p}.gate.weight", "{p}.up.weight"]      rows g0 g1 g2 and u0 u1 u2
to: "{p}.gate_up.weight"                        rows g0 u0 g1 u1 g2 u2
do: {interleave: {dim: 0}}

Over a capture the way back needs ``parts``: how many there are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from remap.errors import UsageError
from remap.expr import Reshape, Slice
from remap.ops.arguments import Arguments, symbols
from remap.ops.arithmetic import Arithmetic
from remap.ops.base import Parts, Scope, Shape
from remap.ops.parts.concat import how_many
from remap.ops.parts.stack import StackOp


@dataclass(frozen=True)
class InterleaveOp:
    """Element n of every part, then element n + 1 of every part."""

    dim: int
    over: str | None
    parts: Arithmetic | None = None
    name: str = "interleave"
    shape: Shape = "join"

    @property
    def symbols(self) -> frozenset[str]:
        return symbols((self.parts,))

    def build(self, parts: Parts, scope: Scope) -> Parts:
        shape = parts[0].spec.shape
        if self.dim >= len(shape):
            raise UsageError(f"interleave along dimension {self.dim} of tensors of shape {list(shape)}")
        (stacked,) = StackOp(self.dim + 1, None).build(parts, scope)
        whole = (*shape[: self.dim], shape[self.dim] * len(parts), *shape[self.dim + 1 :])
        return (Reshape(stacked, whole),)

    def inverse(self) -> DeinterleaveOp:
        return DeinterleaveOp(self.dim, self.over, self.parts)


@dataclass(frozen=True)
class DeinterleaveOp:
    """Every n-th element, as many parts as targets."""

    dim: int
    over: str | None
    parts: Arithmetic | None = None
    name: str = "deinterleave"
    shape: Shape = "cut"

    @property
    def symbols(self) -> frozenset[str]:
        return symbols((self.parts,))

    def build(self, parts: Parts, scope: Scope) -> Parts:
        (whole,) = parts
        shape = whole.spec.shape
        count = how_many("deinterleave", self.parts, scope)
        if self.dim >= len(shape) or shape[self.dim] % count:
            raise UsageError(f"deinterleave of dimension {self.dim} of {list(shape)} into {count} parts")
        each = shape[self.dim] // count
        rows = Reshape(whole, (*shape[: self.dim], each, count, *shape[self.dim + 1 :]))
        part = (*shape[: self.dim], each, *shape[self.dim + 1 :])
        return tuple(Reshape(Slice(rows, self.dim + 1, n, n + 1), part) for n in range(count))

    def inverse(self) -> InterleaveOp:
        return InterleaveOp(self.dim, self.over, self.parts)


def interleave(given: Mapping[str, object]) -> InterleaveOp:
    """Read ``interleave``'s arguments."""
    a = Arguments("interleave", given)
    op = InterleaveOp(a.whole("dim", 0), a.text("over"), a.maybe_size("parts"))
    a.done()
    return op


def deinterleave(given: Mapping[str, object]) -> DeinterleaveOp:
    """Read ``deinterleave``'s arguments."""
    a = Arguments("deinterleave", given)
    op = DeinterleaveOp(a.whole("dim", 0), a.text("over"), a.maybe_size("parts"))
    a.done()
    return op
