"""``concat`` joins parts along a dimension, ``split`` cuts them apart. Each undoes the other.

    do: {concat: {dim: 0}}                              equal parts
    do: {split: {dim: 0, sizes: [heads*head_dim, kv_heads*head_dim, kv_heads*head_dim]}}

Without ``sizes`` the parts are equal. With ``over: e`` they are the members of the capture ``e``; how many
these are the keys of the whole don't say, so ``parts: experts`` does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from remap.errors import UsageError
from remap.expr import Concat, Slice
from remap.ops.arguments import Arguments, symbols, value
from remap.ops.arithmetic import Arithmetic
from remap.ops.base import Parts, Scope, Shape


@dataclass(frozen=True)
class ConcatOp:
    """Parts joined along ``dim``; ``sizes``, or the number of equal ``parts``, are for the way back."""

    dim: int
    over: str | None
    sizes: tuple[Arithmetic, ...] | None
    parts: Arithmetic | None = None
    name: str = "concat"
    shape: Shape = "join"

    @property
    def symbols(self) -> frozenset[str]:
        return symbols((*(self.sizes or ()), self.parts))

    def build(self, parts: Parts, scope: Scope) -> Parts:
        return (Concat(parts, self.dim),)

    def inverse(self) -> SplitOp:
        return SplitOp(self.dim, self.over, self.sizes, self.parts)


@dataclass(frozen=True)
class SplitOp:
    """One part cut along ``dim``."""

    dim: int
    over: str | None
    sizes: tuple[Arithmetic, ...] | None
    parts: Arithmetic | None = None
    name: str = "split"
    shape: Shape = "cut"

    @property
    def symbols(self) -> frozenset[str]:
        return symbols((*(self.sizes or ()), self.parts))

    def build(self, parts: Parts, scope: Scope) -> Parts:
        (whole,) = parts
        if self.dim >= len(whole.spec.shape):
            raise UsageError(
                f"split along dimension {self.dim} of a tensor of shape {list(whole.spec.shape)}"
            )
        size = whole.spec.shape[self.dim]
        sizes = self._sizes(size, scope)
        if sum(sizes) != size:
            raise UsageError(f"split of {size} elements into {sizes}, which are {sum(sizes)}")
        starts = [sum(sizes[:n]) for n in range(len(sizes))]
        return tuple(Slice(whole, self.dim, a, a + n) for a, n in zip(starts, sizes, strict=True))

    def _sizes(self, size: int, scope: Scope) -> list[int]:
        if self.sizes is not None:
            sizes = [value(s, scope) for s in self.sizes]
            if scope.wanted is not None and len(sizes) != scope.wanted:
                raise UsageError(f"split into {len(sizes)} sizes for {scope.wanted} targets")
            return sizes
        count = how_many("split", self.parts, scope)
        if size % count:
            raise UsageError(f"split of {size} elements into {count} equal parts")
        return [size // count] * count

    def inverse(self) -> ConcatOp:
        return ConcatOp(self.dim, self.over, self.sizes, self.parts)


def how_many(name: str, parts: Arithmetic | None, scope: Scope) -> int:
    """How many parts a cut gives: as many as targets, or what ``parts`` says. Raises UsageError."""
    count = scope.wanted if parts is None else value(parts, scope)
    if not count or (scope.wanted is not None and count != scope.wanted):
        where = "a capture" if scope.wanted is None else f"{scope.wanted} targets"
        asked = f"into {count} parts" if count else "into how many parts? say parts:"
        raise UsageError(f"{name} over {where} {asked}")
    return count


def concat(given: Mapping[str, object]) -> ConcatOp:
    """Read ``concat``'s arguments."""
    a = Arguments("concat", given)
    op = ConcatOp(a.whole("dim", 0), a.text("over"), a.sizes("sizes"), a.maybe_size("parts"))
    a.done()
    return op


def split(given: Mapping[str, object]) -> SplitOp:
    """Read ``split``'s arguments."""
    a = Arguments("split", given)
    op = SplitOp(a.whole("dim", 0), a.text("over"), a.sizes("sizes"), a.maybe_size("parts"))
    a.done()
    return op
