"""Ranges of bytes out of files: by a descriptor where the file is of this machine, else by a RemoteFile."""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Union

from remap.files.locate import is_remote

if TYPE_CHECKING:
    from remap.files.remote import RemotePath

AHEAD = 8 << 20
"""Bytes of the largest request. Whatever it asks for, the answer begins some hundredths of a second later, in
which a good line brings a megabyte or two."""


class RemoteFile:
    """A remote file that is read. One a thread.

    What is read in order is asked for ahead, twice as much each time: never more than was read already, so
    that reading a header takes no more than the header.
    """

    __slots__ = ("_ahead", "_start", "_window", "path", "size")

    def __init__(self, path: RemotePath) -> None:
        self.path = path
        self.size = path.stat().st_size
        self._start = 0
        self._window = b""
        self._ahead = 0

    def preadv(self, places: Sequence[memoryview], offset: int, expected: int) -> int:
        """As ``os.preadv``: fill ``places`` from ``offset`` on; gives the bytes, fewer at the end of what a
        request brought, 0 at the end of the file."""
        from remap.files import store

        wanted = sum(map(len, places))
        stop = self._start + len(self._window)
        if not self._start <= offset < stop:
            self._ahead = min(AHEAD, 2 * self._ahead) if offset == stop else 0
            nbytes = max(wanted, min(AHEAD, max(self._ahead, expected)))
            self._start = offset
            self._window = store.read(self.path, offset, min(nbytes, self.size - offset), self.size)
            self._ahead = max(self._ahead, len(self._window))
        done = 0
        found = memoryview(self._window)[offset - self._start :]
        for place in places:
            n = min(len(place), len(found) - done)
            place[:n] = found[done : done + n]
            done += n
        if done == len(found):  # many files may be open, and their windows take memory
            self._start, self._window = offset + done, b""
        return done


Handle = Union[int, RemoteFile]
"""A file that is open for reading."""


def open_handle(path: Path) -> Handle:
    """Open a file for reading. Raises OSError, InputError."""
    return RemoteFile(path) if is_remote(path) else os.open(path, os.O_RDONLY)


def close(handle: Handle) -> None:
    """Close it."""
    if isinstance(handle, int):
        os.close(handle)


def size_of(handle: Handle) -> int:
    """Bytes of the file."""
    return os.fstat(handle).st_size if isinstance(handle, int) else handle.size


def preadv(handle: Handle, places: Sequence[memoryview], offset: int, expected: int = 0) -> int:
    """Fill ``places`` one after another from ``offset`` of the file on; gives how many bytes that were, which
    may be fewer, and is 0 at the end of the file.

    expected  bytes from ``offset`` on that will be wanted soon, 0 where that is not known

    Raises OSError; InputError where a remote file can't be read.
    """
    if isinstance(handle, int):
        return os.preadv(handle, places, offset)
    return handle.preadv(places, offset, expected)


def pread(handle: Handle, nbytes: int, offset: int) -> bytes:
    """``nbytes`` from ``offset`` on, fewer only at the end of the file."""
    if isinstance(handle, int):
        return os.pread(handle, nbytes, offset)
    data = bytearray(max(0, min(nbytes, handle.size - offset)))
    into = memoryview(data)
    while into:
        n = handle.preadv([into], offset, 0)
        into, offset = into[n:], offset + n
    return bytes(data)


class RangeReader(io.RawIOBase):
    """A handle as a stream of bytes."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: size_of(self._handle)}[whence]
        self._at = base + offset
        return self._at

    def readinto(self, into: memoryview) -> int:  # type: ignore[override]
        n = preadv(self._handle, [memoryview(into)], self._at)
        self._at += n
        return n

    def close(self) -> None:
        if not self.closed:
            close(self._handle)
        super().close()
