"""One task: bytes are read into a buffer, summed there, and written from there.

``copy_file_range`` would save a copy and leave nothing to take the digest of.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import xxhash
from zlib_ng.zlib_ng import crc32  # fifteen times the speed of zlib's, which would halve a copy's

from remap.expr import blocks
from remap.formats.base import CopiedBytes, Literal, Part, TensorBytes
from remap.stream.read import BUFFER, Sources, belied, read_runs
from remap.stream.work import Piece, Task, runs_of

Progress = Callable[[int], None]


class Sum:
    """What is taken of a part while its bytes pass: xxh3 of tensors, CRC-32 where anyone asks."""

    def __init__(self, part: Part, sealed: bool) -> None:
        self._expected = _expected_crc(part)
        self._crc = 0 if sealed or self._expected is not None else None
        self._hash = xxhash.xxh3_128() if isinstance(part, TensorBytes) else None
        self._part = part

    def add(self, data: memoryview | bytes) -> None:
        if self._hash is not None:
            self._hash.update(data)
        if self._crc is not None:
            self._crc = crc32(data, self._crc)

    @property
    def crc(self) -> int:
        return self._crc or 0

    @property
    def digest(self) -> str | None:
        return self._hash.hexdigest() if self._hash else None

    def check(self) -> None:
        """Raise Damaged where the source's own checksum disagrees with its bytes."""
        if self._expected is not None and self.crc != self._expected:
            file, name = _origin(self._part)
            raise belied(self.crc, self._expected, f"{file}: {name}")


def _expected_crc(part: Part) -> int | None:
    if isinstance(part, CopiedBytes):
        return part.crc32
    if isinstance(part, TensorBytes):
        entry = getattr(part.expr, "entry", None)
        return entry.location.crc32 if entry and entry.location else None
    return None


def _origin(part: Part) -> tuple[Path | None, str]:
    if isinstance(part, CopiedBytes):
        return part.file, f"bytes {part.offset} to {part.offset + part.nbytes}"
    if isinstance(part, TensorBytes):
        entry = getattr(part.expr, "entry", None)
        if entry and entry.location:
            return entry.location.file, entry.key
    return None, ""


class Sink:
    """Gathers bytes in a buffer and writes it out when full, from ``offset`` of ``fd`` on."""

    def __init__(self, fd: int, offset: int, progress: Progress) -> None:
        self._fd = fd
        self._offset = offset
        self._view = memoryview(bytearray(BUFFER))
        self._filled = 0
        self._progress = progress

    def room(self) -> memoryview:
        """The free part of the buffer, never empty; ``took`` says how much of it was filled."""
        if self._filled == BUFFER:
            self.flush()
        return self._view[self._filled :]

    def took(self, nbytes: int) -> None:
        """``nbytes`` were put at the start of ``room()``."""
        self._filled += nbytes

    def write(self, data: memoryview | bytes) -> None:
        """Append ``data``; large data passes the buffer by."""
        if len(data) > BUFFER - self._filled:
            self.flush()
        if len(data) > BUFFER:
            self._put(memoryview(data))
            return
        self._view[self._filled : self._filled + len(data)] = data
        self._filled += len(data)

    def flush(self) -> None:
        """Write what is gathered."""
        self._put(self._view[: self._filled])
        self._filled = 0

    def _put(self, data: memoryview) -> None:
        while data:
            n = os.pwrite(self._fd, data, self._offset)
            self._offset += n
            data = data[n:]
            self._progress(n)


def run_task(task: Task, path: Path, sealed: bool, budget: int, progress: Progress) -> dict[int, Sum]:
    """Write the task's pieces to ``path``; the sums of its parts by their number in the file."""
    fd = os.open(path, os.O_WRONLY)
    try:
        return _write(task, fd, sealed, budget, progress)
    finally:
        os.close(fd)


def _write(task: Task, fd: int, sealed: bool, budget: int, progress: Progress) -> dict[int, Sum]:
    sums: dict[int, Sum] = {}
    sink = Sink(fd, task.offset, progress)
    with Sources() as sources:
        for piece in task.pieces:
            sums[piece.number] = total = Sum(piece.part, sealed)
            if isinstance(piece.part, Literal):
                total.add(piece.part.data)
                sink.write(piece.part.data)
            elif (runs := runs_of(piece.part)) is None:
                _compute(piece, sink, total, budget)
            else:
                for data in read_runs(runs, sources, sink.room):
                    total.add(data)
                    sink.took(len(data))
            total.check()
    sink.flush()
    return sums


def _compute(piece: Piece, sink: Sink, total: Sum, budget: int) -> None:
    assert isinstance(piece.part, TensorBytes)
    for block in blocks.blocks(piece.part.expr, budget):
        total.add(block)
        sink.write(block)
