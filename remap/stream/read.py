"""Reading runs: the bytes that an expression was lowered to, a buffer at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from remap.errors import Damaged
from remap.expr import Expr, blocks, ranges
from remap.files import Handle, close, open_handle, preadv
from remap.stream.copies import read_copies
from remap.stream.gather import ended, gather

BUFFER = 1 << 20
"""Bytes read at a time. What fits the processor's cache between reading, summing and writing was
fastest: 4 MiB took twice the time of 1 MiB."""

OPEN_FILES = 64


def belied(found: int, said: int, where: object) -> Damaged:
    """The error for bytes that don't have the CRC-32 which their file gives."""
    return Damaged(
        f"the bytes have CRC-32 {found:08x}, the file says {said:08x}",
        where=where,
        remedy="the file is damaged; fetch or save it again",
    )


class Sources:
    """Source files, opened for reading when first needed, never more than OPEN_FILES at a time."""

    def __init__(self) -> None:
        self._open: dict[Path, Handle] = {}

    def __enter__(self) -> Sources:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def fd(self, path: Path) -> Handle:
        """The handle of ``path``."""
        if path not in self._open:
            if len(self._open) >= OPEN_FILES:
                self._close()
            self._open[path] = open_handle(path)
        return self._open[path]

    def _close(self) -> None:
        for fd in self._open.values():
            close(fd)
        self._open.clear()


def read_runs(
    runs: list[ranges.Run], sources: Sources, room: Callable[[], memoryview]
) -> Iterator[memoryview]:
    """The bytes of ``runs`` in order. Each piece is read into the memory that ``room()`` gives (never
    empty), and is gone once the next is asked for. Raises Damaged where a file ends too early."""
    number = 0
    while number < len(runs):
        into = room()
        count, filled = gather(runs, number, into, sources.fd)
        if count:
            number += count
            yield into[:filled]
        else:
            yield from _read_run(runs[number], sources, room)
            number += 1


def _read_run(run: ranges.Run, sources: Sources, room: Callable[[], memoryview]) -> Iterator[memoryview]:
    """The bytes of one run."""
    if isinstance(run, ranges.Copies):
        yield from read_copies(run, sources.fd, room)
        return
    left = run.nbytes
    while left:
        into = room()[:left]
        if isinstance(run, ranges.Fill):
            into[:] = bytes(len(into))
            n = len(into)
        else:
            offset = run.offset + run.nbytes - left
            n = preadv(sources.fd(run.file), [into], offset, left)
            if not n:
                raise ended(run.file, offset, left)
        yield into[:n]
        left -= n


def read_expr(expr: Expr, memory: int) -> Iterator[memoryview]:
    """The row-major bytes of ``expr``, read where it lowers to byte ranges, else computed in blocks
    under ``memory`` bytes."""
    runs = ranges.lower(expr)
    if runs is None:
        yield from blocks.blocks(expr, memory)
        return
    buffer = memoryview(bytearray(BUFFER))
    with Sources() as sources:
        yield from read_runs(runs, sources, lambda: buffer)
