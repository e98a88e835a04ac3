"""``pad`` lengthens a dimension (a vocabulary rounded up), ``unpad`` cuts it to a size.

    do: {pad: {to: padded_vocab, from: vocab}}
    do: {unpad: {to: vocab, from: padded_vocab}}

Each undoes the other where both sizes are stated. What ``unpad`` cuts off is lost: padding is what the
author says it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from remap.errors import UsageError
from remap.expr import Pad, Slice
from remap.ops.arguments import Arguments, symbols, value
from remap.ops.arithmetic import Arithmetic
from remap.ops.base import NoInverse, Parts, Scope, Shape


@dataclass(frozen=True)
class PadOp:
    """Elements of ``value`` added at the end of ``dim``, up to the size ``to``."""

    dim: int
    to: Arithmetic
    before: Arithmetic | None
    value: float = 0.0
    name: str = "pad"
    shape: Shape = "map"
    over: None = None

    @property
    def symbols(self) -> frozenset[str]:
        return symbols((self.to, self.before))

    def build(self, parts: Parts, scope: Scope) -> Parts:
        (part,) = parts
        size = _size(part.spec.shape, self.dim, self.before, scope, self.name)
        wanted = value(self.to, scope)
        if wanted < size:
            raise UsageError(f"pad of {size} elements to {wanted}, which is less")
        if not part.spec.dtype.holds(self.value):
            raise UsageError(f"pad with {self.value:g}, which {part.spec.dtype.name} does not hold")
        return (Pad(part, self.dim, 0, wanted - size, self.value),)

    def inverse(self) -> UnpadOp | NoInverse:
        if self.before is None:
            return NoInverse("the size before is not stated; say from:")
        return UnpadOp(self.dim, self.before, self.to, self.value)


@dataclass(frozen=True)
class UnpadOp:
    """The first ``to`` elements of ``dim``."""

    dim: int
    to: Arithmetic
    before: Arithmetic | None
    value: float = 0.0
    name: str = "unpad"
    shape: Shape = "map"
    over: None = None

    @property
    def symbols(self) -> frozenset[str]:
        return symbols((self.to, self.before))

    def build(self, parts: Parts, scope: Scope) -> Parts:
        (part,) = parts
        size = _size(part.spec.shape, self.dim, self.before, scope, self.name)
        wanted = value(self.to, scope)
        if wanted > size:
            raise UsageError(f"unpad of {size} elements to {wanted}, which is more")
        return (Slice(part, self.dim, 0, wanted),)

    def inverse(self) -> PadOp | NoInverse:
        if self.before is None:
            return NoInverse("the size before is not stated; say from:")
        return PadOp(self.dim, self.before, self.to, self.value)


def _size(shape: tuple[int, ...], dim: int, before: Arithmetic | None, scope: Scope, name: str) -> int:
    if dim >= len(shape):
        raise UsageError(f"{name} along dimension {dim} of a tensor of shape {list(shape)}")
    if before is not None and value(before, scope) != shape[dim]:
        raise UsageError(f"{name} from {value(before, scope)} elements; dimension {dim} has {shape[dim]}")
    return shape[dim]


def pad(given: Mapping[str, object]) -> PadOp:
    """Read ``pad``'s arguments."""
    a = Arguments("pad", given)
    op = PadOp(a.whole("dim", 0), a.size("to"), a.maybe_size("from"), a.number("value", 0.0))
    a.done()
    return op


def unpad(given: Mapping[str, object]) -> UnpadOp:
    """Read ``unpad``'s arguments."""
    a = Arguments("unpad", given)
    op = UnpadOp(a.whole("dim", 0), a.size("to"), a.maybe_size("from"), a.number("value", 0.0))
    a.done()
    return op
