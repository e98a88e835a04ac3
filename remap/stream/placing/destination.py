"""May an output be put at a destination? Everything is checked before a byte is written."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from remap.errors import DestinationError, RemapError
from remap.receipt import RECEIPT, read, receipt_path
from remap.types import Catalog

REASONS = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the quota is used up",
    errno.EFBIG: "the file system or a limit allows no file of that size",
    errno.EACCES: "no permission to write there",
    errno.EPERM: "no permission to write there",
    errno.EROFS: "the file system is read-only",
    errno.ENOTEMPTY: "something appeared there meanwhile",
    errno.EEXIST: "something appeared there meanwhile",
    errno.EBUSY: "it is in use by the system",
}


@contextmanager
def explained(destination: Path) -> Iterator[None]:
    """What the system refuses inside becomes a DestinationError in words."""
    try:
        yield
    except OSError as e:
        raise DestinationError(
            REASONS.get(e.errno or 0, e.strerror or str(e)),
            where=destination,
            remedy="make room, or name another destination",
        ) from None


def resolved(destination: Path) -> Path:
    """The absolute path, a link to a folder followed."""
    path = destination.expanduser()
    if path.is_dir() or not path.name:
        return path.resolve()
    return path.parent.resolve() / path.name


def check_apart(destination: Path, source: Catalog) -> None:
    """Neither may lie in the other: a source is never written to. Raises DestinationError."""
    root = (source.asked or source.root).resolve()
    files = {f.resolve() for f in source.files}
    real = destination.resolve()
    inside = root.is_dir() and (real == root or root in real.parents)
    if inside or real in files:
        raise DestinationError(
            "the destination is the source, or lies inside it; a source is never written to",
            where=destination,
            remedy="name another folder",
        )
    if any(real in f.parents for f in files) and any(real.iterdir()):
        raise DestinationError(
            "the destination holds the source", where=destination, remedy="name another folder"
        )


def check_place(destination: Path) -> None:
    """An output is put in place by a rename, which can't replace every folder."""
    for what, holds in (
        ("a mount point", destination.is_dir() and destination.is_mount()),
        ("the current folder", destination == Path.cwd()),
    ):
        if holds:
            raise DestinationError(
                f"is {what}, and an output is put in place by a rename, which can't replace it",
                where=destination,
                remedy=f"name a folder inside it: {destination / 'out'}",
            )


def check_free(destination: Path, single_file: bool, overwrite: bool) -> None:
    """Nothing is there, or with ``overwrite`` just what remap wrote. Raises DestinationError."""
    if single_file:
        _check_receipt(destination)
    if not os.path.lexists(destination):
        return
    if single_file and destination.is_dir():
        raise DestinationError("is a folder, and one file is to be written", where=destination)
    if not single_file and not destination.is_dir():
        raise DestinationError("is a file, and a folder is to be written", where=destination)
    if destination.is_dir() and not any(destination.iterdir()):
        return
    if not overwrite:
        raise DestinationError(
            "exists already", where=destination, remedy="name another destination, or give --overwrite"
        )
    foreign = _foreign(destination)
    if foreign:
        raise DestinationError(
            "--overwrite replaces what remap wrote, and there is more than that",
            where=destination,
            problems=foreign,
            remedy="move it away, or name another destination",
        )


def _foreign(destination: Path) -> list[str]:
    """What lies at a destination that no receipt there lists."""
    path = receipt_path(destination)
    if not path.is_file():
        return [f"{destination.name}: no receipt of remap's lies with it"]
    listed = set(read(path).files)
    if destination.is_file():
        return [] if destination.name in listed else [destination.name]
    listed.add(RECEIPT)
    there = (p for p in destination.rglob("*") if not p.is_dir() or p.is_symlink())
    return sorted(n for p in there if (n := p.relative_to(destination).as_posix()) not in listed)


def _check_receipt(destination: Path) -> None:
    """The receipt of a single file lies beside it: what has its name must be one."""
    path = receipt_path(destination)
    if path.exists():
        try:
            read(path)
        except RemapError as e:
            raise DestinationError(
                "the receipt would replace a file that is none", where=path, remedy="move it away"
            ) from e
