"""Paths of remote files: ``s3://bucket/model/config.json``, ``https://host/model.safetensors``.

A RemotePath is its text: names, parents and suffixes are a PosixPath's, and what asks the disk asks ``store``
instead. It holds no secret (see ``access``). Code that hands one to the system (``os.open``) gets an error.
"""

from __future__ import annotations

import io
import os
import re
from collections.abc import Generator
from fnmatch import fnmatchcase
from pathlib import Path, PosixPath
from stat import S_IFDIR, S_IFREG
from typing import Any
from urllib.parse import urlsplit

from remap.errors import UsageError
from remap.files import access

_PLACE = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):(?:/+|$)")
HUB_KINDS = ("models", "datasets", "spaces")
"""What may stand before the two names of a repository."""

WEB = ("http", "https")
"""Schemes of which there are no folders: nothing is ever listed, and a query is no part of a name."""


class RemotePath(PosixPath):
    """A file, or a folder, that fsspec reads. See the module's docstring."""

    __slots__ = ()

    def __str__(self) -> str:
        return _PLACE.sub(r"\1://", super().__str__(), count=1)

    def __fspath__(self) -> str:
        raise TypeError(f"{self} is no file of this machine")

    def __reduce__(self) -> Any:
        return _restore, (str(self), access.of(self.host, str(self.parent)))

    @property
    def parent(self) -> RemotePath:
        """The folder; of the root that itself, as of that of a disk."""
        return self if self.is_root else super().parent

    @property
    def parents(self) -> tuple[RemotePath, ...]:
        """Every folder that it lies in, up to the bucket."""
        return () if self.parent is self else (self.parent, *self.parent.parents)

    @property
    def scheme(self) -> str:
        """``s3``, ``https``, ..."""
        return self.parts[0].rstrip(":")

    @property
    def is_root(self) -> bool:
        """True for a host, a bucket, a repository of the Hugging Face hub: nothing above can be listed."""
        parts = self.parts
        if self.scheme == "hf":
            return len(parts) <= (4 if parts[1:2] and parts[1] in HUB_KINDS else 3)
        return len(parts) <= 2

    @property
    def host(self) -> str:
        """Scheme and host or bucket, ``s3://bucket``: what user and password are for."""
        return f"{self.scheme}://{''.join(self.parts[1:2])}"

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        """Size, and what tells that the file was replaced (as its inode). Raises FileNotFoundError."""
        from remap.files import store

        found = store.info(self)
        if found is None:
            raise FileNotFoundError(2, "no such file or folder", str(self))
        mode = S_IFDIR if found.is_folder else S_IFREG
        return os.stat_result((mode, found.stamp, 0, 1, 0, 0, found.size, 0, 0, 0), {"st_mtime_ns": 0})

    def lstat(self) -> os.stat_result:
        return self.stat()

    def exists(self, *, follow_symlinks: bool = True) -> bool:
        """Raises InputError where something may be there and not be seen."""
        from remap.files import store

        found = self._info()
        store.check_allowed(self)
        return found is not None

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        found = self._info()
        return found is not None and not found.is_folder

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        found = self._info()
        return found is not None and found.is_folder

    def _info(self) -> Any:
        from remap.files import store

        return store.info(self)

    def is_symlink(self) -> bool:
        return False

    def iterdir(self) -> Generator[RemotePath, None, None]:
        """What the folder holds; nothing where there are no folders (the web)."""
        from remap.files import store

        yield from [self / name for name in store.listing(self) or ()]

    def glob(self, pattern: str) -> Generator[RemotePath, None, None]:
        """As Path's, one level of folders for each part of the pattern."""
        first, _, rest = pattern.partition("/")
        for path in self.iterdir():
            if fnmatchcase(path.name, first):
                yield from path.glob(rest) if rest else [path]

    def open(self, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
        """The file as a stream of bytes, read in ranges. Raises ValueError for any other mode."""
        from remap.files.reading import RangeReader, open_handle

        if mode != "rb":
            raise ValueError(f"a remote file is opened to read bytes, not with mode {mode!r}")
        return io.BufferedReader(RangeReader(open_handle(self)), 1)

    def read_bytes(self) -> bytes:
        with self.open("rb") as f:
            return bytes(f.read())

    def read_text(
        self, encoding: str | None = None, errors: str | None = None, newline: str | None = None
    ) -> str:
        return self.read_bytes().decode(encoding or "utf-8", errors or "strict")

    def resolve(self, strict: bool = False) -> RemotePath:
        return self

    def absolute(self) -> RemotePath:
        return self

    def expanduser(self) -> RemotePath:
        return self


def parse(url: str) -> RemotePath:
    """The path of a URL; what it says in confidence is kept apart, and what is known of its folder forgotten.

    Raises UsageError where it names no host or bucket.
    """
    parts = urlsplit(url.partition("#")[0] if url.lower().startswith(WEB) else url)
    web = parts.scheme in WEB
    rest = parts.path if web or not parts.query else f"{parts.path}?{parts.query}"
    user, at, host = parts.netloc.rpartition("@")
    if parts.scheme == "hf":  # hf://org/name@revision/file
        user, at, host = "", "", parts.netloc
    path = RemotePath(f"{parts.scheme}://{host}{rest}")
    if not host and parts.scheme != "memory":
        raise UsageError("names no host or bucket", where=path, remedy=f"write {parts.scheme}://bucket/path")
    query = f"?{parts.query}" if web and parts.query else ""
    access.keep(path.host, str(path.parent), access.Access(f"{user}@" if at else "", query))
    from remap.files import store

    store.forget(path)
    return path


def _restore(text: str, kept: access.Access) -> Path:
    path = RemotePath(text)
    access.keep(path.host, str(path.parent), kept)
    return path
