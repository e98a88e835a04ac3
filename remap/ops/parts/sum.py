"""``sum`` adds parts up, ``divide`` shares a tensor out evenly (biases of row-parallel layers).

    do: {sum: {over: rank}}
    do: {divide: {over: rank, parts: tp}}

What was divided by a power of two is its sum again, bit for bit. What was summed can't be told apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from remap.errors import UsageError
from remap.expr import Affine, Sum
from remap.ops.arguments import Arguments, symbols, value
from remap.ops.arithmetic import Arithmetic
from remap.ops.base import NoInverse, Parts, Scope, Shape


@dataclass(frozen=True)
class SumOp:
    """Parts added element by element."""

    over: str | None
    name: str = "sum"
    shape: Shape = "join"
    symbols: frozenset[str] = frozenset()

    def build(self, parts: Parts, scope: Scope) -> Parts:
        return (Sum(parts),)

    def inverse(self) -> NoInverse:
        return NoInverse("the addends can't be told from their sum")


@dataclass(frozen=True)
class DivideOp:
    """One part as ``parts`` equal addends."""

    over: str | None
    parts: Arithmetic | None
    name: str = "divide"
    shape: Shape = "cut"

    @property
    def symbols(self) -> frozenset[str]:
        return symbols((self.parts,))

    def build(self, parts: Parts, scope: Scope) -> Parts:
        count = scope.wanted if self.parts is None else value(self.parts, scope)
        if not count or (scope.wanted is not None and count != scope.wanted):
            raise UsageError(f"divide into {count or 'how many'} parts for {scope.wanted or 'a capture'}")
        share = Affine(parts[0], scale=1 / count)
        return (share,) * count

    def inverse(self) -> SumOp:
        return SumOp(self.over)


def sum_(given: Mapping[str, object]) -> SumOp:
    """Read ``sum``'s arguments."""
    a = Arguments("sum", given)
    op = SumOp(a.text("over"))
    a.done()
    return op


def divide(given: Mapping[str, object]) -> DivideOp:
    """Read ``divide``'s arguments."""
    a = Arguments("divide", given)
    op = DivideOp(a.text("over"), a.maybe_size("parts"))
    a.done()
    return op
