"""Computing what does not lower to byte ranges: block by block, under a byte budget.

A block is a range of the output's first dimension. Every node answers for a *box* (start and stop
in each dimension) of its result by asking its children for the boxes that it needs, so no more of
a source is read than the block is made of. ``compute`` has the arithmetic; it is NumPy's, which is
imported when a block is computed.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import TYPE_CHECKING

from remap.expr.boxes import nbytes, needed, sizes, the, whole
from remap.expr.nodes import Expr, Permute, Slice, Sum, Take
from remap.expr.products import Box, Lengths, LowRank, Normed, Times
from remap.expr.stored import NEAR
from remap.types import Derived

if TYPE_CHECKING:
    from torch import Tensor

FAST = 2 << 20
"""Bytes. The memory of larger blocks is new from the system each time, which costs more than arithmetic."""

PIECE = 4 << 10
"""Bytes. Smaller pieces of a file (columns of a matrix) take longer to ask for than to read."""


def evaluate(expr: Expr) -> Tensor:
    """The whole tensor as torch's, on the CPU."""
    import torch

    dtype = getattr(torch, expr.spec.dtype.name)
    if not expr.spec.numel:
        return torch.empty(expr.spec.shape, dtype=dtype)
    return torch.frombuffer(block(expr, whole(expr)), dtype=dtype).view(expr.spec.shape)


def blocks(expr: Expr, budget: int) -> Iterator[memoryview]:
    """The row-major bytes of ``expr``, in blocks that take at most ``budget`` bytes to compute
    (or one row of the first dimension, where that takes more)."""
    return (block(expr, box) for box in boxes(expr, budget))


def block(expr: Expr, box: Box) -> memoryview:
    """The row-major bytes of a box of ``expr``."""
    from remap.expr.arrays import data
    from remap.expr.compute import compute

    return data(compute(expr, box))


def peak(expr: Expr, budget: int) -> int:
    """Most bytes that ``blocks(expr, budget)`` holds at a time, counted before anything is read."""
    return max((_cost(expr, box) for box in boxes(expr, budget)), default=0)


def boxes(expr: Expr, budget: int) -> Iterator[Box]:
    """``expr`` cut along its first dimension, so that no box takes more than ``budget`` bytes to compute."""
    if expr.spec.numel == 0:
        return
    everything = whole(expr)
    if not everything:
        yield everything
        return
    (_, rows), *rest = everything
    step = max(1, rows)
    while step > 1 and _is_large(expr, ((0, step), *rest), ((0, (step + 1) // 2), *rest), budget):
        step = (step + 1) // 2
    for start in range(0, rows, step):
        yield ((start, min(start + step, rows)), *rest)


def _is_large(expr: Expr, box: Box, half: Box, budget: int) -> bool:
    """True where a block is to be halved: it takes more than ``budget`` bytes, or more than is fast while its
    half would be read in pieces as large, or large enough."""
    cost = _cost(expr, box)
    return cost > budget or (cost > FAST and _piece(expr, half) >= min(PIECE, _piece(expr, box)))


def _piece(expr: Expr, box: Box) -> int:
    """Bytes of a source that are read in one go for ``box``, the fewest of all sources."""
    if isinstance(expr, Take) and not isinstance(expr.entry.location, Derived):
        size = expr.spec.dtype.itemsize
        for wanted, there in zip(reversed(sizes(box)), reversed(expr.spec.shape), strict=True):
            size *= wanted
            if wanted < there:
                break
        return size
    children = [expr.entry.location.expr] if isinstance(expr, Take) else expr.children  # type: ignore[union-attr]
    needs = [box] if isinstance(expr, Take) else needed(expr, box)
    pieces = (_piece(c, need) for c, need in zip(children, needs, strict=True) if need is not None)
    return min(pieces, default=PIECE)


def _cost(expr: Expr, box: Box) -> int:
    """Bytes held while a box is computed: its result and everything it is made of."""
    if isinstance(expr, Take):
        if isinstance(expr.entry.location, Derived):
            return _cost(expr.entry.location.expr, box)
        return 2 * nbytes(expr, box) + NEAR  # what is read, and the elements picked from it
    if isinstance(expr, (Slice, Permute)):
        return _cost(expr.of, the(needed(expr, box)[0]))  # views
    own = nbytes(expr, box)
    if isinstance(expr, Sum):
        own += 3 * 8 * prod(sizes(box))  # total, part and new total in double precision
    if isinstance(expr, (LowRank, Times, Normed, Lengths)):
        own += sum(_float_bytes(need) for need in (box, *expr.needs(box)))  # factors, product, scaled product
    return own + sum(
        _cost(child, need)
        for child, need in zip(expr.children, needed(expr, box), strict=True)
        if need is not None
    )


def _float_bytes(box: Box | None) -> int:
    return 4 * prod(sizes(the(box)))
