"""A box of a tensor that files hold, read: in one go where its elements lie near, else piece by piece."""

from __future__ import annotations

from math import prod
from pathlib import Path
from typing import TYPE_CHECKING

from remap.errors import Damaged, UsageError
from remap.expr import ranges
from remap.expr.boxes import sizes as sizes_of
from remap.expr.nodes import Take
from remap.expr.products import Box
from remap.expr.ranges import row_major
from remap.files import Handle, close, open_handle, preadv
from remap.types import Derived, Location, Span, TensorSpec

if TYPE_CHECKING:
    from remap.expr.arrays import Raw

NEAR = 1 << 20
"""Bytes. A strided read fetches everything between its first and last element up to this size."""

GAP = 8 << 10
"""Bytes between rows that are read and thrown away, since that takes less time than a call for each row."""


def read(take: Take, box: Box) -> Raw:
    """The raw elements of a box. Raises UsageError where only the key list is known, Damaged where a file
    ends too early."""
    where, spec = take.entry.location, take.spec
    if where is None:
        raise UsageError("only the key list is known, there are no bytes to read", where=take.entry.key)
    assert not isinstance(where, Derived)
    strides = row_major(spec.shape)
    if isinstance(where, Location):
        strides = where.strides if where.strides is not None else strides
        bytes_ = ranges.Stream(
            [Span(where.file, where.offset, _cover(spec.shape, strides) * spec.dtype.itemsize)]
        )
    else:
        bytes_ = ranges.Stream(list(where.spans))
    first = sum(a * s for (a, _), s in zip(box, strides, strict=True))
    with _Files(take, bytes_) as files:
        return _strided(files, spec, first * spec.dtype.itemsize, sizes_of(box), strides)


def _strided(
    files: _Files, spec: TensorSpec, offset: int, sizes: tuple[int, ...], strides: tuple[int, ...]
) -> Raw:
    """Elements at ``offset + sum(i * stride)``: with all between them where they lie near, else apart."""
    import numpy as np

    from remap.expr.arrays import raw_type

    raw, size = raw_type(spec.dtype), spec.dtype.itemsize
    if not prod(sizes):
        return np.empty(sizes, raw)
    cover = _cover(sizes, strides)
    if cover == prod(sizes) or cover * size <= NEAR:
        near = np.empty(cover, raw)
        files.read(near.view(np.uint8).data, offset)
        return np.lib.stride_tricks.as_strided(near, sizes, [s * size for s in strides])
    out = np.empty(sizes, raw)
    rows = _rows_at_once(sizes, strides, size)
    if rows == 1 and strides[1:] == row_major(sizes)[1:]:
        for i, row in enumerate(out.reshape(sizes[0], -1).view(np.uint8)):
            files.read(row.data, offset + i * strides[0] * size)
        return out
    for i in range(0, sizes[0], rows):
        some = (min(rows, sizes[0] - i), *sizes[1:]) if rows > 1 else sizes[1:]
        there = offset + i * strides[0] * size
        out[i : i + rows] = _strided(files, spec, there, some, strides if rows > 1 else strides[1:])
    return out


def _cover(sizes: tuple[int, ...], strides: tuple[int, ...]) -> int:
    """Elements from the first to the last."""
    return 1 + sum((n - 1) * s for n, s in zip(sizes, strides, strict=True))


def _rows_at_once(sizes: tuple[int, ...], strides: tuple[int, ...], size: int) -> int:
    """How many rows are read with the gaps between them; 1 where that would be more than a call costs."""
    gap = strides[0] - _cover(sizes[1:], strides[1:])
    return max(1, NEAR // (max(1, strides[0]) * size)) if gap * size <= GAP else 1


class _Files:
    """The bytes of one source tensor, in one file or in pieces over several; one file is open at a time."""

    def __init__(self, take: Take, stream: ranges.Stream) -> None:
        self._key = take.entry.key
        self._stream = stream
        self._file: Path | None = None
        self._fd: Handle = -1

    def __enter__(self) -> _Files:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            close(self._fd)

    def read(self, into: memoryview, offset: int) -> None:
        """Fill ``into`` from byte ``offset`` of the tensor on. Raises Damaged where a file ends too early."""
        for run in self._stream.cut(offset, len(into)):
            assert isinstance(run, Span)
            piece, into = into[: run.nbytes], into[run.nbytes :]
            self._read(run.file, piece, run.offset)

    def _read(self, file: Path, into: memoryview, offset: int) -> None:
        if file is not self._file:
            self.__exit__()
            self._fd, self._file = open_handle(file), file
        while into:
            n = preadv(self._fd, [into], offset, len(into))
            if not n:
                raise Damaged("the file ends inside the tensor", where=f"{file}: {self._key}")
            into, offset = into[n:], offset + n
