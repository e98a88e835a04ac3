"""``addends``: the tensor is the sum of the ranks'.

The bias of a row-parallel layer where each rank adds its own before the one reduction: GPT-NeoX with
``gpt_j_residual`` (megatron/model/transformer.py). Divided by a power of two, nothing is rounded, and the
sum of the parts is the tensor bit for bit; for another number rank 0 has all of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from remap.expr import Affine, Constant, Expr, Sum
from remap.partitions.base import Merging


@dataclass(frozen=True)
class Addends:
    """See the module's docstring."""

    dim: None = None

    def merge(self, parts: Sequence[Expr], how: Merging) -> Expr:
        """The sum."""
        return parts[0] if len(parts) == 1 else Sum(tuple(parts))

    def split(self, whole: Expr, ranks: int) -> Sequence[Expr]:
        """Equal addends, or all of it and zeros."""
        if ranks & (ranks - 1):
            return [whole, *[Constant(whole.spec)] * (ranks - 1)]
        return [Affine(whole, 1 / ranks)] * ranks if ranks > 1 else [whole]
