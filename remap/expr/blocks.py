"""Computing what does not lower to byte ranges: block by block, under a byte budget.

A block is a range of the output's first dimension. Every node answers for a *box* (start and stop
in each dimension) of its result by asking its children for the boxes that it needs, so no more of
a source is read than the block is made of. The arithmetic is torch's, which is imported here and
only when a block is computed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING

from remap.dtypes import DType
from remap.errors import Damaged, UsageError
from remap.expr import ranges
from remap.expr.nodes import (
    Affine,
    Cast,
    Concat,
    Constant,
    Expr,
    Normal,
    Pad,
    Permute,
    Reshape,
    Same,
    Slice,
    Sum,
    Take,
    takes,
)
from remap.expr.products import Box, LowRank, Normed, Times
from remap.expr.ranges import row_major
from remap.types import Derived, Location, Span, TensorSpec

if TYPE_CHECKING:
    from torch import Tensor

NEAR = 1 << 20
"""Bytes. A strided read fetches everything between its first and last element up to this size."""


LARGEST = 32 << 20
"""Bytes that a block takes to compute, at most. Larger ones fall out of the processor's cache."""


def evaluate(expr: Expr) -> Tensor:
    """The whole tensor, on the CPU."""
    return _compute(expr, _whole(expr))


def blocks(expr: Expr, budget: int) -> Iterator[memoryview]:
    """The row-major bytes of ``expr``, in blocks that take at most ``budget`` bytes to compute
    (or one row of the first dimension, where that takes more)."""
    return (block(expr, box) for box in boxes(expr, budget))


def block(expr: Expr, box: Box) -> memoryview:
    """The row-major bytes of a box of ``expr``."""
    import torch

    found = _compute(expr, box).contiguous()
    flat = found.as_strided((found.numel(),), (1,))  # one element may carry any stride
    data: memoryview = flat.view(torch.uint8).numpy().data
    return data


def peak(expr: Expr, budget: int) -> int:
    """Most bytes that ``blocks(expr, budget)`` holds at a time, counted before anything is read."""
    return max((_cost(expr, box) for box in boxes(expr, budget)), default=0)


def boxes(expr: Expr, budget: int) -> Iterator[Box]:
    """``expr`` cut along its first dimension, so that no box takes more than ``budget`` bytes to compute."""
    budget = min(budget, LARGEST)
    if expr.spec.numel == 0:
        return
    whole = _whole(expr)
    if not whole:
        yield whole
        return
    rows = whole[0][1]
    step = max(1, rows)
    while step > 1 and _cost(expr, ((0, step), *whole[1:])) > budget:
        step = (step + 1) // 2
    for start in range(0, rows, step):
        yield ((start, min(start + step, rows)), *whole[1:])


def _whole(expr: Expr) -> Box:
    return tuple((0, n) for n in expr.spec.shape)


def nbytes(expr: Expr, box: Box) -> int:
    """Bytes of a box of ``expr``."""
    return prod(b - a for a, b in box) * expr.spec.dtype.itemsize


def _cost(expr: Expr, box: Box) -> int:
    """Bytes held while ``_compute(expr, box)`` runs: its result and everything it is made of."""
    if isinstance(expr, Take):
        if isinstance(expr.entry.location, Derived):
            return _cost(expr.entry.location.expr, box)
        return 2 * nbytes(expr, box) + NEAR  # what is read, and the elements picked from it
    if isinstance(expr, (Slice, Permute)):
        return _cost(expr.of, _need(_needed(expr, box)[0]))  # views
    own = nbytes(expr, box)
    if isinstance(expr, Sum):
        own += 3 * 8 * prod(b - a for a, b in box)  # total, part and new total in double precision
    if isinstance(expr, (LowRank, Times, Normed)):
        own += sum(_float_bytes(need) for need in (box, *expr.needs(box)))  # factors, product, scaled product
    return own + sum(
        _cost(child, need)
        for child, need in zip(expr.children, _needed(expr, box), strict=True)
        if need is not None
    )


def _float_bytes(box: Box | None) -> int:
    return 4 * prod(b - a for a, b in _need(box))


def _needed(expr: Expr, box: Box) -> list[Box | None]:
    """For each child, the box of it that ``box`` of ``expr`` is made of; None where it needs none."""
    if isinstance(expr, Slice):
        return [_along(box, expr.dim, box[expr.dim][0] + expr.start, box[expr.dim][1] + expr.start)]
    if isinstance(expr, Permute):
        return [tuple(box[expr.dims.index(d)] for d in range(len(box)))]
    if isinstance(expr, (Cast, Same, Affine, Sum)):
        return [box for _ in expr.children]
    if isinstance(expr, (LowRank, Times, Normed)):
        return expr.needs(box)
    if isinstance(expr, Reshape):
        return [_rows_of(expr, box)]
    if isinstance(expr, Pad):
        return [_clipped(box, expr.dim, expr.before, expr.of.spec.shape[expr.dim])]
    if isinstance(expr, Concat):
        needs: list[Box | None] = []
        start = 0
        for part in expr.parts:
            needs.append(_clipped(box, expr.dim, start, part.spec.shape[expr.dim]))
            start += part.spec.shape[expr.dim]
        return needs
    return []


def _along(box: Box, dim: int, start: int, stop: int) -> Box:
    return (*box[:dim], (start, stop), *box[dim + 1 :])


def _clipped(box: Box, dim: int, start: int, size: int) -> Box | None:
    """The part of ``box`` that falls on a child lying at ``start`` along ``dim``, in its own count."""
    a, b = max(box[dim][0] - start, 0), min(box[dim][1] - start, size)
    return _along(box, dim, a, b) if a < b else None


def _rows_of(expr: Reshape, box: Box) -> Box:
    """The rows of the child that hold the elements of the rows of ``box``."""
    first, stop = _flat(expr.spec.shape, box)
    shape = expr.of.spec.shape
    if not shape:
        return ()
    inner = max(1, prod(shape[1:]))
    return ((first // inner, -(-stop // inner)), *((0, n) for n in shape[1:]))


def _flat(shape: tuple[int, ...], box: Box) -> tuple[int, int]:
    """Row-major interval covered by the rows of ``box``, the other dimensions taken whole."""
    if not shape:
        return 0, 1
    inner = prod(shape[1:])
    return box[0][0] * inner, box[0][1] * inner


def _compute(expr: Expr, box: Box) -> Tensor:
    import torch

    if isinstance(expr, Take):
        derived = expr.entry.location
        return _compute(derived.expr, box) if isinstance(derived, Derived) else _read(expr, box)
    needs = _needed(expr, box)
    if isinstance(expr, Slice):
        return _compute(expr.of, _need(needs[0]))
    if isinstance(expr, Permute):
        return _compute(expr.of, _need(needs[0])).permute(expr.dims)
    if isinstance(expr, Cast):
        return _compute(expr.of, _need(needs[0])).to(getattr(torch, expr.dtype.name))
    if isinstance(expr, Reshape):
        return _reshape(expr, box, _compute(expr.of, _need(needs[0])))
    if isinstance(expr, Concat):
        parts = [_compute(p, need) for p, need in zip(expr.parts, needs, strict=True) if need is not None]
        return parts[0] if len(parts) == 1 else torch.cat(parts, expr.dim)
    if isinstance(expr, Same):
        return _agreed(expr, box)
    if isinstance(expr, (Affine, Sum)):
        return _arithmetic(expr, [_compute(p, box) for p in expr.children])
    if isinstance(expr, (LowRank, Times, Normed)):
        parts = [_compute(p, _need(need)) for p, need in zip(expr.children, needs, strict=True)]
        return expr.compute(box, parts)
    if isinstance(expr, Normal):
        return _normal(expr, box)
    if isinstance(expr, Constant):
        return torch.full([b - a for a, b in box], expr.value, dtype=getattr(torch, expr.spec.dtype.name))
    out = torch.full(
        [b - a for a, b in box], expr.value, dtype=getattr(torch, expr.spec.dtype.name), device="cpu"
    )
    need = needs[0]
    if need is not None:
        start = need[expr.dim][0] + expr.before - box[expr.dim][0]
        length = need[expr.dim][1] - need[expr.dim][0]
        out.narrow(expr.dim, start, length).copy_(_compute(expr.of, need))
    return out


def _normal(expr: Normal, box: Box) -> Tensor:
    """Row by row of the first dimension: row r of the tensor comes from the seed plus r."""
    import torch

    shape = expr.spec.shape
    generator = torch.Generator()
    rows = []
    for row in range(*box[0]) if shape else (0,):
        generator.manual_seed((expr.seed + row) % 2**63)
        values = torch.randn(shape[1:], generator=generator) * expr.std
        rows.append(values[tuple(slice(a, b) for a, b in box[1:])])
    out = torch.stack(rows) if shape else rows[0]
    return out.to(getattr(torch, expr.spec.dtype.name))


def _arithmetic(expr: Affine | Sum, parts: list[Tensor]) -> Tensor:
    if isinstance(expr, Affine):
        scaled = parts[0] * expr.scale if expr.scale != 1 else parts[0]
        return scaled + expr.offset if expr.offset else scaled
    total = parts[0].double()
    for part in parts[1:]:
        total = total + part.double()
    return total.to(parts[0].dtype)


def _agreed(expr: Same, box: Box) -> Tensor:
    """The first copy, after all others turned out to have its very bits."""
    import torch

    first = _compute(expr.parts[0], box).contiguous()
    raw = first.reshape(-1).view(torch.uint8)
    odd = []
    for part in expr.parts[1:]:
        other = _compute(part, box).contiguous()
        if not torch.equal(raw, other.reshape(-1).view(torch.uint8)):
            odd.append(
                f"{_origin(part)} differs by up to {(other.double() - first.double()).abs().max():.3g}"
            )
    if odd:
        raise ranges.disagreement(_origin(expr.parts[0]), odd)
    return first


def _origin(expr: Expr) -> str:
    entry = next(takes(expr)).entry
    return f"{entry.location.file}: {entry.key}" if entry.location else entry.key


def _need(box: Box | None) -> Box:
    assert box is not None
    return box


def _reshape(expr: Reshape, box: Box, rows: Tensor) -> Tensor:
    first, stop = _flat(expr.spec.shape, box)
    skipped = _flat(expr.of.spec.shape, _rows_of(expr, box))[0]
    flat = rows.reshape(-1)[first - skipped : stop - skipped]
    if not expr.spec.shape:
        return flat.reshape(())
    out = flat.reshape(box[0][1] - box[0][0], *expr.spec.shape[1:])
    index = (slice(None), *(slice(a, b) for a, b in box[1:]))
    return out[index]


def _read(take: Take, box: Box) -> Tensor:
    where, spec = take.entry.location, take.spec
    if where is None:
        raise UsageError("only the key list is known, there are no bytes to read", where=take.entry.key)
    assert not isinstance(where, Derived)
    strides = row_major(spec.shape)
    if isinstance(where, Location):
        strides = where.strides if where.strides is not None else strides
        bytes_ = ranges.Stream([Span(where.file, where.offset, _reach(spec, strides))])
    else:
        bytes_ = ranges.Stream(list(where.spans))
    first = sum(a * s for (a, _), s in zip(box, strides, strict=True))
    sizes = tuple(b - a for a, b in box)
    with _Files(take, bytes_) as files:
        return _strided(files, spec.dtype, first * spec.dtype.itemsize, sizes, strides)


def _reach(spec: TensorSpec, strides: tuple[int, ...]) -> int:
    """Bytes from the first element to the end of the last."""
    return (1 + sum((n - 1) * s for n, s in zip(spec.shape, strides, strict=True))) * spec.dtype.itemsize


def _strided(
    files: _Files, dtype: DType, offset: int, sizes: tuple[int, ...], strides: tuple[int, ...]
) -> Tensor:
    """Elements at ``offset + sum(i * stride)``: one read where they lie near, else row by row."""
    import torch

    element = getattr(torch, dtype.name)
    if not prod(sizes):
        return torch.empty(sizes, dtype=element)
    size = dtype.itemsize
    cover = 1 + sum((n - 1) * s for n, s in zip(sizes, strides, strict=True))
    if not sizes or cover * size <= max(NEAR, 2 * prod(sizes) * size):
        data = bytearray(cover * size)
        files.read(memoryview(data), offset)
        return torch.frombuffer(data, dtype=element).as_strided(sizes, strides)
    out = torch.empty(sizes, dtype=element)
    for i in range(sizes[0]):
        out[i] = _strided(files, dtype, offset + i * strides[0] * size, sizes[1:], strides[1:])
    return out


class _Files:
    """The bytes of one source tensor, in one file or in pieces over several; one file is open at a time."""

    def __init__(self, take: Take, stream: ranges.Stream) -> None:
        self._key = take.entry.key
        self._stream = stream
        self._file: Path | None = None
        self._fd = -1

    def __enter__(self) -> _Files:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            os.close(self._fd)

    def read(self, into: memoryview, offset: int) -> None:
        """Fill ``into`` from byte ``offset`` of the tensor on. Raises Damaged where a file ends too early."""
        for run in self._stream.cut(offset, len(into)):
            assert isinstance(run, Span)
            piece, into = into[: run.nbytes], into[run.nbytes :]
            self._read(run.file, piece, run.offset)

    def _read(self, file: Path, into: memoryview, offset: int) -> None:
        if file != self._file:
            self.__exit__()
            self._fd, self._file = os.open(file, os.O_RDONLY), file
        while into:
            n = os.preadv(self._fd, [into], offset)
            if not n:
                raise Damaged("the file ends inside the tensor", where=f"{file}: {self._key}")
            into, offset = into[n:], offset + n
