"""A file as bytes that can be sliced, without reading or mapping it whole.

A mapped file counts as this process's memory wherever it was touched, with whatever the kernel maps around
it: the headers of a large zip came to hundreds of megabytes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path

from remap.files import close, fetch, is_remote, open_handle, pread, size_of

BLOCK = 1 << 14
"""Bytes that are read at a time. Headers lie close together, or one by one between large storages."""

KEPT = 16
"""Blocks that are kept: those of a directory, and of what it points at in turn."""


class FileBytes:
    """Slices of it are bytes. Use as a context manager. Raises OSError where the file can't be read."""

    def __init__(self, path: Path) -> None:
        self._fd = open_handle(path)
        self._size = size_of(self._fd)
        self._path = path
        self._block: Callable[[int], bytes] = lru_cache(KEPT)(self._read_block)
        self._near: Mapping[int, bytes] = {}

    def __enter__(self) -> FileBytes:
        return self

    def __exit__(self, *_: object) -> None:
        close(self._fd)

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, part: slice) -> bytes:
        first, stop, _ = part.indices(self._size)
        near = self._near.get(first, b"")
        if 0 < stop - first <= len(near):
            return near[: stop - first]
        number = first // BLOCK
        if first < stop <= (number + 1) * BLOCK:
            start = number * BLOCK
            return self._block(number)[first - start : stop - start]
        return pread(self._fd, max(0, stop - first), first)

    def look_ahead(self, offsets: Sequence[int], nbytes: int) -> None:
        """Slices of up to ``nbytes`` from each of ``offsets`` on will be asked for: of a remote file they are
        fetched at once, since one after another each would take a round trip."""
        if is_remote(self._path):
            self._near = fetch(self._path, offsets, nbytes)

    def rfind(self, what: bytes, first: int, stop: int) -> int:
        """As ``bytes.rfind``; the stretch is read whole."""
        found = self[first:stop].rfind(what)
        return first + found if found >= 0 else -1

    def _read_block(self, number: int) -> bytes:
        return pread(self._fd, BLOCK, number * BLOCK)
