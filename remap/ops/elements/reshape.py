"""``reshape`` gives the same elements, in row-major order, another shape.

    do: {reshape: {to: [heads, head_dim, hidden], from: [heads*head_dim, hidden]}}

The inverse needs ``from``: the shape before is not in the shape after.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from remap.errors import PackError, UsageError
from remap.expr import Reshape
from remap.ops.arguments import Arguments, symbols, value
from remap.ops.arithmetic import Arithmetic
from remap.ops.base import NoInverse, Parts, Scope, Shape


@dataclass(frozen=True)
class ReshapeOp:
    """The same elements under the shape ``to``."""

    to: tuple[Arithmetic, ...]
    before: tuple[Arithmetic, ...] | None
    name: str = "reshape"
    shape: Shape = "map"
    over: None = None

    @property
    def symbols(self) -> frozenset[str]:
        return symbols((*self.to, *(self.before or ())))

    def build(self, parts: Parts, scope: Scope) -> Parts:
        (part,) = parts
        if self.before is not None:
            wanted = tuple(value(s, scope) for s in self.before)
            if wanted != part.spec.shape:
                raise UsageError(f"reshape from {list(wanted)} of a tensor of shape {list(part.spec.shape)}")
        return (Reshape(part, tuple(value(s, scope) for s in self.to)),)

    def inverse(self) -> ReshapeOp | NoInverse:
        if self.before is None:
            return NoInverse("the shape before is not stated; say from:")
        return ReshapeOp(self.before, self.to)


def reshape(given: Mapping[str, object]) -> ReshapeOp:
    """Read ``reshape``'s arguments."""
    a = Arguments("reshape", given)
    to = a.sizes("to")
    before = a.sizes("from")
    a.done()
    if to is None:
        raise PackError("reshape needs to: a list of sizes")
    return ReshapeOp(to, before)
