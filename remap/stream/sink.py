"""Where a task's bytes go: gathered in a buffer and written out, or shared with the source's file."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Protocol, Union

from remap.files import Handle
from remap.formats.base import BLOCK
from remap.stream import disk
from remap.stream.read import BUFFER
from remap.types import Span

Progress = Callable[[int], None]


class Appended(Protocol):
    """A file that is written from start to end."""

    def write(self, data: memoryview | bytes) -> None: ...


Into = Union[int, Appended]

SHARED = 64 << 10
"""Bytes: some blocks at least. What is shorter is copied, unless it continues what is shared."""

_threads = threading.local()


def _buffer() -> memoryview:
    """This thread's own: memory that is new to a process costs more than the copy into it."""
    if not hasattr(_threads, "buffer"):
        _threads.buffer = memoryview(bytearray(BUFFER))
    found: memoryview = _threads.buffer
    return found


class Sink:
    """Writes to a file: at ``offset`` and from there on by its descriptor, or one after another. One a thread
    at a time.

    source    gives the descriptor of a file to share with
    progress  called with the number of bytes that were written, or are shared
    """

    def __init__(self, into: Into, offset: int, source: Callable[[Path], Handle], progress: Progress) -> None:
        self._into = into
        self._offset = offset  # of what the buffer holds, after what is shared
        self._view = _buffer()
        self._filled = 0
        self._shared: Span | None = None
        self._source = source
        self._progress = progress

    def room(self) -> memoryview:
        """The free part of the buffer, never empty; ``took`` says how much of it was filled."""
        if self._filled == BUFFER or self._shared:
            self.flush()
        return self._view[self._filled :]

    def took(self, nbytes: int) -> None:
        """``nbytes`` were put at the start of ``room()``."""
        self._filled += nbytes

    def write(self, data: memoryview | bytes) -> None:
        """Append ``data``; large data passes the buffer by."""
        if len(data) > BUFFER - self._filled or self._shared:
            self.flush()
        if len(data) > BUFFER:
            self._put(memoryview(data))
            return
        self._view[self._filled : self._filled + len(data)] = data
        self._filled += len(data)

    def scratch(self) -> memoryview:
        """The whole buffer, for bytes that are read to be summed and shared."""
        if self._shared is None:
            self.flush()
        return self._view

    def shares(self, span: Span) -> bool:
        """True where the next bytes may be ``share``d with ``span``: both lie alike in their blocks."""
        if self._shared is not None and self._continues(span):
            return True
        place = self._offset + self._filled + (self._shared.nbytes if self._shared else 0)
        return span.nbytes >= SHARED and (span.offset - place) % BLOCK == 0

    def share(self, span: Span) -> None:
        """Append the bytes of ``span``, which were read already: whole blocks are shared, the ends copied."""
        if self._shared is not None and self._continues(span):
            span = Span(span.file, self._shared.offset, self._shared.nbytes + span.nbytes)
        else:
            self.flush()
        self._shared = span

    def flush(self) -> None:
        """Write what is gathered."""
        if self._shared is not None:
            self._settle(self._shared)
            self._shared = None
        self._put(self._view[: self._filled])
        self._filled = 0

    def _continues(self, span: Span) -> bool:
        last = self._shared
        return last is not None and last.file == span.file and last.offset + last.nbytes == span.offset

    def _settle(self, span: Span) -> None:
        fd = self._source(span.file)
        assert isinstance(fd, int), "no other file shares"
        assert isinstance(self._into, int), "no other file shares"
        start = span.offset
        head = min(-start % BLOCK, span.nbytes)
        whole = (span.nbytes - head) // BLOCK * BLOCK
        self._copy(fd, start, head)
        try:
            disk.share(fd, start + head, self._into, self._offset, whole)
        except OSError:  # a file with other rules than its neighbours, a limit of the file system
            self._copy(fd, start + head, whole)
        else:
            self._offset += whole
            self._progress(whole)
        self._copy(fd, start + head + whole, span.nbytes - head - whole)

    def _copy(self, fd: int, start: int, nbytes: int) -> None:
        while nbytes:
            n = os.preadv(fd, [self._view[: min(BUFFER, nbytes)]], start)
            if not n:
                raise OSError("a source got shorter while it was read")
            self._put(self._view[:n])
            start, nbytes = start + n, nbytes - n

    def _put(self, data: memoryview) -> None:
        if not isinstance(self._into, int):
            self._into.write(data)
            self._progress(len(data))
            return
        while data:
            n = os.pwrite(self._into, data, self._offset)
            self._offset += n
            data = data[n:]
            self._progress(n)
