"""Remote files that are written: from start to end, in parts (S3's multipart upload and its like)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from remap.errors import DestinationError, RemapError
from remap.files import store
from remap.files.remote import WEB, RemotePath

PART = 8 << 20
"""Bytes of a part. Two are in memory: one is filled while the other is under way."""

PARTS = 9_000
"""Parts of a file, at most; S3 takes 10,000. A larger file has larger parts."""


class Output:
    """A remote file while it is written. Nobody sees it before ``commit`` where the store can keep it back
    (S3, GCS), else before ``close``.

    nbytes  size that it will have

    Every method raises DestinationError.
    """

    def __init__(self, path: RemotePath, nbytes: int) -> None:
        self.path = path
        self._part = max(PART, -(-nbytes // PARTS // PART) * PART)
        self._buffer = bytearray()
        self._thread = ThreadPoolExecutor(1)
        self._under_way: Future[None] | None = None
        self._file = _tried(path, self._open)

    def _open(self) -> Any:
        fs, inner = store.connect(self.path)
        return fs.open(inner, "wb", block_size=self._part, autocommit=False)

    def write(self, data: memoryview | bytes) -> None:
        """Append ``data``."""
        view = memoryview(data)
        while view:
            free = self._part - len(self._buffer)
            self._buffer += view[:free]
            view = view[free:]
            if len(self._buffer) == self._part:
                self._send()

    def close(self) -> None:
        """Send what is left, and wait for it."""
        self._send()
        self._wait()
        self._thread.shutdown()
        _tried(self.path, self._file.close)

    def commit(self) -> None:
        """Make the file seen."""
        _tried(self.path, self._file.commit)

    def discard(self) -> None:
        """Take back what was sent. Raises nothing: there is an error already."""
        self._thread.shutdown()
        with contextlib.suppress(Exception):  # a store that keeps nothing back, or has lost it
            self._file.discard()
        self._file.closed = True  # or it would be finished once it is forgotten

    def _send(self) -> None:
        self._wait()
        part, self._buffer = bytes(self._buffer), bytearray()
        self._under_way = self._thread.submit(_tried, self.path, lambda: self._file.write(part))

    def _wait(self) -> None:
        if self._under_way is not None:
            self._under_way.result()


def check_writable(path: RemotePath) -> None:
    """Raise DestinationError where nothing can be written at all."""
    if path.scheme in WEB:
        raise DestinationError(
            "a web server takes no uploads",
            where=path,
            remedy="name the store behind it: s3://, gs://, hf://",
        )


def put(path: RemotePath, data: bytes) -> None:
    """Write a small file. Raises DestinationError."""

    def ask() -> None:
        fs, inner = store.connect(path)
        fs.pipe_file(inner, data)

    _tried(path, ask)


def remove(path: RemotePath) -> bool:
    """Remove a file; False where that failed."""
    fs, inner = store.connect(path)
    try:
        fs.rm_file(inner)
    except FileNotFoundError:
        return True
    except Exception:
        return False
    return True


def _tried(path: RemotePath, ask: Callable[[], Any]) -> Any:
    try:
        return ask()
    except RemapError:
        raise
    except Exception as e:
        raise DestinationError(
            f"it can't be written: {store.reason(e)}",
            where=path,
            remedy="nothing that was sent is kept; try again, or name another destination",
        ) from None
