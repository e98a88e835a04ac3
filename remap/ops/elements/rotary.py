"""``rotary`` reorders the rows of a query or key projection between the two ways to rotate.

    do: {rotary: {heads: heads, from: interleaved, to: half}}

``interleaved`` (Meta LLaMA, GPT-J) rotates neighbours, rows 0 1, 2 3, ...; ``half`` (Hugging Face, GPT-NeoX)
rotates row n of a head's first half with row n of its second. ``rotary_dim`` leaves the rest of each head.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from remap.errors import PackError, UsageError
from remap.expr import Concat, Expr, Permute, Reshape, Slice
from remap.ops.arguments import Arguments, symbols, value
from remap.ops.arithmetic import Arithmetic
from remap.ops.base import Parts, Scope, Shape

WAYS = ("half", "interleaved")


@dataclass(frozen=True)
class RotaryOp:
    """Rows of every head reordered; undone by the other direction."""

    heads: Arithmetic
    to_half: bool
    dim: Arithmetic | None
    name: str = "rotary"
    shape: Shape = "map"
    over: None = None

    @property
    def symbols(self) -> frozenset[str]:
        return symbols((self.heads, self.dim))

    def build(self, parts: Parts, scope: Scope) -> Parts:
        (part,) = parts
        heads = value(self.heads, scope)
        rows, *rest = part.spec.shape or (0,)
        if not heads or rows % heads:
            raise UsageError(f"rotary of {rows} rows into {heads} heads")
        size = rows // heads
        turned = size if self.dim is None else value(self.dim, scope)
        if turned % 2 or not 0 < turned <= size:
            raise UsageError(f"rotary of {turned} rows of a head of {size}; they come in pairs")
        view: Expr = Reshape(part, (heads, size, *rest))
        done = self._turn(Slice(view, 1, 0, turned) if turned < size else view, heads, turned, rest)
        if turned < size:
            done = Concat((done, Slice(view, 1, turned, size)), 1)
        return (Reshape(done, (rows, *rest)),)

    def _turn(self, view: Expr, heads: int, size: int, rest: list[int]) -> Expr:
        split = (size // 2, 2) if self.to_half else (2, size // 2)
        order = (0, 2, 1, *range(3, 3 + len(rest)))
        return Reshape(Permute(Reshape(view, (heads, *split, *rest)), order), (heads, size, *rest))

    def inverse(self) -> RotaryOp:
        return RotaryOp(self.heads, not self.to_half, self.dim)


def rotary(given: Mapping[str, object]) -> RotaryOp:
    """Read ``rotary``'s arguments."""
    a = Arguments("rotary", given)
    heads, before, to = a.size("heads"), a.choice("from", WAYS), a.choice("to", WAYS)
    dim = a.maybe_size("rotary_dim")
    a.done()
    if before == to:
        raise PackError(f"rotary: from and to are both {to}")
    return RotaryOp(heads, to == "half", dim)
