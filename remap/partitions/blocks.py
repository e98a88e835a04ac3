"""``fused(n)``, ``fused_columns(n)`` and ``qkv(heads, kv_heads)``: tensors on top of each other, each of them
divided.

A rank has its rows of the first, then its rows of the second, so joining ranks would interleave them.
``fused(2)``: a gated MLP's two halves (GPT-NeoX ``mlp.linear1``); ``fused(3)``: metaseq's keys, values and
queries. ``qkv``: queries of all heads, then keys and values of fewer (GPT-NeoX with grouped queries since
2024-11-14, megatron/model/transformer.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from remap.errors import PackError, UsageError
from remap.expr import Concat, Expr, Slice
from remap.partitions.base import Merging, Size, cut


@dataclass(frozen=True)
class Blocks:
    """Blocks of so many units each; ``whole``: a rank has whole units of every block."""

    units: tuple[Size, ...]
    whole: bool
    dim: int = 0

    def merge(self, parts: Sequence[Expr], how: Merging) -> Expr:
        """The first block of every rank, then the second, ..."""
        if len(parts) == 1:
            return parts[0]
        cuts = [self._blocks(p) for p in parts]
        return Concat(tuple(rank[b] for b in range(len(self.units)) for rank in cuts), self.dim)

    def split(self, whole: Expr, ranks: int) -> Sequence[Expr]:
        """Each rank's rows of every block."""
        if ranks == 1:
            return [whole]
        if self.whole:
            for size in self.units:
                size.each(ranks)
        blocks = [cut(block, self.dim, ranks) for block in self._blocks(whole)]
        return [Concat(tuple(block[r] for block in blocks), self.dim) for r in range(ranks)]

    def _blocks(self, expr: Expr) -> list[Expr]:
        rows, units = expr.spec.shape[self.dim], [u.known for u in self.units]
        if not sum(units) or rows % sum(units):
            raise UsageError(f"{rows} rows are not {' and '.join(map(str, units))} equal units")
        step, out, start = rows // sum(units), [], 0
        for count in units:
            out.append(Slice(expr, self.dim, start, start + count * step))
            start += count * step
        return list(out)


def fused(blocks: Size) -> Blocks:
    """``fused(2)``."""
    if blocks.value is None or not 1 < blocks.value < 100:
        raise PackError(f"fused({blocks.text}): how many blocks is a number")
    return Blocks((Size("1", 1),) * blocks.value, whole=False)


def fused_columns(blocks: Size) -> Blocks:
    """``fused_columns(2)``: the same along dimension 1, as in the experts of one tensor, [experts, 2*inner,
    hidden]."""
    return Blocks(fused(blocks).units, whole=False, dim=1)


def qkv(heads: Size, kv_heads: Size) -> Blocks:
    """``qkv(heads, kv_heads)``."""
    return Blocks((heads, kv_heads, kv_heads), whole=True)
