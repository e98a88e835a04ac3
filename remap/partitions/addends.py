"""``addends``: the tensor is the sum of the ranks'.

The bias of a row-parallel layer where each rank adds its own before the one reduction: GPT-NeoX with
``gpt_j_residual`` (megatron/model/transformer.py). Divided, rank 0 has all of it: the sum is then the tensor
bit for bit, where equal parts would be rounded (in float16 already what is below 6.1e-5). The other ranks
have -0.0, the one number that changes nothing it is added to, a zero's sign included.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from remap.expr import Constant, Expr, Sum
from remap.partitions.base import Merging


@dataclass(frozen=True)
class Addends:
    """See the module's docstring."""

    dim: None = None

    def merge(self, parts: Sequence[Expr], how: Merging) -> Expr:
        """The sum."""
        return parts[0] if len(parts) == 1 else Sum(tuple(parts))

    def split(self, whole: Expr, ranks: int) -> Sequence[Expr]:
        """All of it, and nothing."""
        return [whole, *[Constant(whole.spec, -0.0)] * (ranks - 1)]
