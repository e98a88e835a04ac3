"""``NAME.undo.json``: what the headers of a checkpoint were before a rename in place, and what they are now.

It lies beside the checkpoint before a byte of that is changed, and until the rename is undone, or the file is
removed to keep the rename for good.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from remap.documents import parse_as, read_document
from remap.errors import DestinationError, UsageError
from remap.files import is_remote
from remap.stream.placing.names import link, put_file, sync_folder

SUFFIX = ".undo.json"
VERSION = 1


class Header(msgspec.Struct, frozen=True):
    """The header of one safetensors file, before and after: JSON of one length."""

    old: bytes
    new: bytes


class Text(msgspec.Struct, frozen=True):
    """A file that is replaced whole: an index, a receipt."""

    old: bytes
    new: bytes


class Change(msgspec.Struct, frozen=True):
    """A whole rename. Files are called by their names in the folder of the undo file.

    packs  digests of the packs that made it
    """

    version: int
    packs: list[str]
    headers: dict[str, Header]
    texts: dict[str, Text]


def write(change: Change, path: Path) -> None:
    """Put the undo file there, on the disk. Raises DestinationError where there is one."""
    part = _part(path)
    put_file(part, msgspec.json.encode(change), sync=True)
    try:
        link(part, path)
    finally:
        part.unlink(missing_ok=True)
    sync_folder(path.parent)


def _part(path: Path) -> Path:
    return path.with_name(f".{path.name}.part")


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Only one run at a time goes through what an undo file tells. Raises DestinationError for another."""
    fd = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        raise DestinationError("another run is at it", where=path, remedy="wait for it") from None
    except OSError:  # a file system without locks
        pass
    try:
        _part(path).unlink(missing_ok=True)  # of a run that was killed as it wrote the undo file
        yield
    finally:
        os.close(fd)


def read(path: Path) -> Change:
    """Read it. Raises InputError."""
    found = parse_as(Change, read_document(path), "an undo file", path)
    if found.version != VERSION:
        raise UsageError(f"the undo file has version {found.version}", where=path, remedy="use a newer remap")
    return found


def find(path: Path) -> Path | None:
    """The undo file of the checkpoint at ``path``, None where there is none.

    Raises UsageError where there are several, or where the path is remote: a store replaces whole files.
    """
    if is_remote(path):
        raise UsageError(
            "a store can't change a file in its middle", where=path, remedy="convert it to a new destination"
        )
    folder = path if path.is_dir() else path.parent
    found = [p for p in sorted(folder.glob(f"*{SUFFIX}")) if path.is_dir() or _speaks_of(p, path.name)]
    if len(found) > 1:
        raise UsageError(
            f"{len(found)} undo files are here",
            where=path,
            problems=[p.name for p in found],
            remedy="point at a file of the checkpoint",
        )
    return found[0] if found else None


def _speaks_of(path: Path, name: str) -> bool:
    found = read(path)
    return name in found.headers or name in found.texts


def remove(path: Path) -> None:
    """Once the disk has what was undone."""
    os.unlink(path)
    sync_folder(path.parent)
