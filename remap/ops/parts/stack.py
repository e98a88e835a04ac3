"""``stack`` joins parts along a new dimension, ``unstack`` takes them apart. Each undoes the other.

from: "layers.{l:int}.experts.{e:int}.w1.weight"
to: "layers.{l}.experts.w1"
do: {stack: {over: e}}
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from remap.errors import UsageError
from remap.expr import Concat, Reshape, Slice
from remap.ops.arguments import Arguments
from remap.ops.base import Parts, Scope, Shape


@dataclass(frozen=True)
class StackOp:
    """Parts of one shape as a new dimension ``dim``."""

    dim: int
    over: str | None
    name: str = "stack"
    shape: Shape = "join"
    symbols: frozenset[str] = frozenset()

    def build(self, parts: Parts, scope: Scope) -> Parts:
        shape = parts[0].spec.shape
        if self.dim > len(shape):
            raise UsageError(f"stack as dimension {self.dim} of tensors of shape {list(shape)}")
        for p in parts:
            if p.spec.shape != shape:
                raise UsageError(f"stack of shapes {list(shape)} and {list(p.spec.shape)}")
        raised = tuple(Reshape(p, (*shape[: self.dim], 1, *shape[self.dim :])) for p in parts)
        return (Concat(raised, self.dim),)

    def inverse(self) -> UnstackOp:
        return UnstackOp(self.dim, self.over)


@dataclass(frozen=True)
class UnstackOp:
    """One part a place of the dimension ``dim``, which goes."""

    dim: int
    over: str | None
    name: str = "unstack"
    shape: Shape = "cut"
    symbols: frozenset[str] = frozenset()

    def build(self, parts: Parts, scope: Scope) -> Parts:
        (whole,) = parts
        shape = whole.spec.shape
        if self.dim >= len(shape):
            raise UsageError(f"unstack of dimension {self.dim} of a tensor of shape {list(shape)}")
        count = shape[self.dim]
        if scope.wanted is not None and count != scope.wanted:
            raise UsageError(f"unstack of {count} parts for {scope.wanted} targets")
        rest = (*shape[: self.dim], *shape[self.dim + 1 :])
        return tuple(Reshape(Slice(whole, self.dim, n, n + 1), rest) for n in range(count))

    def inverse(self) -> StackOp:
        return StackOp(self.dim, self.over)


def stack(given: Mapping[str, object]) -> StackOp:
    """Read ``stack``'s arguments."""
    a = Arguments("stack", given)
    op = StackOp(a.whole("dim", 0), a.text("over"))
    a.done()
    return op


def unstack(given: Mapping[str, object]) -> UnstackOp:
    """Read ``unstack``'s arguments."""
    a = Arguments("unstack", given)
    op = UnstackOp(a.whole("dim", 0), a.text("over"))
    a.done()
    return op
