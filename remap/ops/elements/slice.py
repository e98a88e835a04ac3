"""``slice`` takes a stretch of a dimension: ``do: {slice: {dim: 0, start: 0, stop: vocab}}``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from remap.expr import Slice
from remap.ops.arguments import Arguments, symbols, value
from remap.ops.arithmetic import Arithmetic
from remap.ops.base import NoInverse, Parts, Scope, Shape


@dataclass(frozen=True)
class SliceOp:
    """Elements ``start`` to ``stop`` (exclusive) of ``dim``."""

    dim: int
    start: Arithmetic
    stop: Arithmetic
    name: str = "slice"
    shape: Shape = "map"
    over: None = None

    @property
    def symbols(self) -> frozenset[str]:
        return symbols((self.start, self.stop))

    def build(self, parts: Parts, scope: Scope) -> Parts:
        return (Slice(parts[0], self.dim, value(self.start, scope), value(self.stop, scope)),)

    def inverse(self) -> NoInverse:
        return NoInverse("what it cuts off is lost")


def slice_(given: Mapping[str, object]) -> SliceOp:
    """Read ``slice``'s arguments."""
    a = Arguments("slice", given)
    op = SliceOp(a.whole("dim", 0), a.size("start"), a.size("stop"))
    a.done()
    return op
