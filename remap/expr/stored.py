"""A box of a tensor that files hold, read: in one go where its elements lie near, else piece by piece."""

from __future__ import annotations

import os
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING

from remap.errors import Damaged, UsageError
from remap.expr import ranges
from remap.expr.boxes import sizes as sizes_of
from remap.expr.nodes import Take
from remap.expr.products import Box
from remap.expr.ranges import row_major
from remap.types import Derived, Location, Span, TensorSpec

if TYPE_CHECKING:
    from remap.expr.arrays import Raw

NEAR = 1 << 20
"""Bytes. A strided read fetches everything between its first and last element up to this size."""


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
        bytes_ = ranges.Stream([Span(where.file, where.offset, _reach(spec, strides))])
    else:
        bytes_ = ranges.Stream(list(where.spans))
    first = sum(a * s for (a, _), s in zip(box, strides, strict=True))
    with _Files(take, bytes_) as files:
        return _strided(files, spec, first * spec.dtype.itemsize, sizes_of(box), strides)


def _reach(spec: TensorSpec, strides: tuple[int, ...]) -> int:
    """Bytes from the first element to the end of the last."""
    return (1 + sum((n - 1) * s for n, s in zip(spec.shape, strides, strict=True))) * spec.dtype.itemsize


def _strided(
    files: _Files, spec: TensorSpec, offset: int, sizes: tuple[int, ...], strides: tuple[int, ...]
) -> Raw:
    """Elements at ``offset + sum(i * stride)``: one read where they lie near, else row by row."""
    import numpy as np

    from remap.expr.arrays import raw_type

    raw = raw_type(spec.dtype)
    out = np.empty(sizes, raw)
    if not prod(sizes):
        return out
    size = spec.dtype.itemsize
    cover = 1 + sum((n - 1) * s for n, s in zip(sizes, strides, strict=True))
    if not sizes or cover * size <= max(NEAR, 2 * prod(sizes) * size):
        near = np.empty(cover, raw)
        files.read(near.view(np.uint8).data, offset)
        return np.lib.stride_tricks.as_strided(near, sizes, [s * size for s in strides])
    if strides[1:] == row_major(sizes)[1:]:
        rows = out.reshape(sizes[0], -1).view(np.uint8)
        for i, row in enumerate(rows):
            files.read(row.data, offset + i * strides[0] * size)
        return out
    for i in range(sizes[0]):
        out[i] = _strided(files, spec, offset + i * strides[0] * size, sizes[1:], strides[1:])
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
        if file is not self._file:
            self.__exit__()
            self._fd, self._file = os.open(file, os.O_RDONLY), file
        while into:
            n = os.preadv(self._fd, [into], offset)
            if not n:
                raise Damaged("the file ends inside the tensor", where=f"{file}: {self._key}")
            into, offset = into[n:], offset + n
