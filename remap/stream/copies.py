"""Bytes of which there are several copies: the first is read, the others are compared with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from remap.expr.ranges import Copies, disagreement
from remap.files import Handle, preadv
from remap.stream.gather import ended
from remap.types import Span

CHUNK = 1 << 18
"""Bytes compared at a time."""


def read_copies(
    run: Copies, fd: Callable[[Path], Handle], room: Callable[[], memoryview]
) -> Iterator[memoryview]:
    """The bytes of ``run``, each piece in the memory that ``room()`` gives. Raises Damaged where a copy
    departs from the first, or a file ends too early."""
    done = 0
    scratch = memoryview(bytearray(min(CHUNK, run.nbytes)))
    while done < run.nbytes:
        into = room()[: min(CHUNK, run.nbytes - done)]
        _read(run.spans[0], done, into, fd)
        odd = []
        for span, name in zip(run.spans[1:], run.names[1:], strict=True):
            other = scratch[: len(into)]
            _read(span, done, other, fd)
            if other != into:
                odd.append(f"{span.file}: {name} has other bytes")
        if odd:
            raise disagreement(f"{run.spans[0].file}: {run.names[0]}", odd)
        yield into
        done += len(into)


def _read(span: Span, skip: int, into: memoryview, fd: Callable[[Path], Handle]) -> None:
    offset = span.offset + skip
    while into:
        n = preadv(fd(span.file), [into], offset, span.nbytes - skip)
        if not n:
            raise ended(span.file, offset, len(into))
        into, offset = into[n:], offset + n
