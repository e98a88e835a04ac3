"""``transpose`` swaps two dimensions, ``permute`` orders all of them anew.

do: transpose                         dimensions 0 and 1
do: {permute: {dims: [2, 0, 1]}}      output dimension i is input dimension dims[i]
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from remap.errors import PackError, UsageError
from remap.expr import Permute
from remap.ops.arguments import Arguments
from remap.ops.base import Parts, Scope, Shape


@dataclass(frozen=True)
class TransposeOp:
    """Two dimensions swapped; undoes itself."""

    dims: tuple[int, int]
    name: str = "transpose"
    shape: Shape = "map"
    over: None = None
    symbols: frozenset[str] = frozenset()

    def build(self, parts: Parts, scope: Scope) -> Parts:
        (part,) = parts
        order = list(range(len(part.spec.shape)))
        a, b = self.dims
        if max(a, b) >= len(order):
            raise UsageError(
                f"transpose of dimensions {a} and {b} of a tensor of shape {list(part.spec.shape)}"
            )
        order[a], order[b] = order[b], order[a]
        return (Permute(part, tuple(order)),)

    def inverse(self) -> TransposeOp:
        return self


@dataclass(frozen=True)
class PermuteOp:
    """Dimensions reordered."""

    dims: tuple[int, ...]
    name: str = "permute"
    shape: Shape = "map"
    over: None = None
    symbols: frozenset[str] = frozenset()

    def build(self, parts: Parts, scope: Scope) -> Parts:
        return (Permute(parts[0], self.dims),)

    def inverse(self) -> PermuteOp:
        return PermuteOp(tuple(self.dims.index(d) for d in range(len(self.dims))))


def transpose(given: Mapping[str, object]) -> TransposeOp:
    """Read ``transpose``'s arguments."""
    a = Arguments("transpose", given)
    dims = a.wholes("dims", (0, 1))
    a.done()
    if len(dims) != 2 or dims[0] == dims[1]:
        raise PackError(f"transpose: dims: {list(dims)} are not two dimensions")
    return TransposeOp((dims[0], dims[1]))


def permute(given: Mapping[str, object]) -> PermuteOp:
    """Read ``permute``'s arguments."""
    a = Arguments("permute", given)
    dims = a.wholes("dims")
    a.done()
    if sorted(dims) != list(range(len(dims))):
        raise PackError(f"permute: dims: {list(dims)} is no order of {len(dims)} dimensions")
    return PermuteOp(dims)
