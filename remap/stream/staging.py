"""An output exists only once it is whole: it is written beside its destination, then renamed.

The folder ``.NAME.remap-HOST-PID-xxxx`` is made in the destination's parent, so that the rename
stays on one file system. A killed run leaves that folder at most; the next run to the same
destination sweeps it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from remap.errors import DestinationError
from remap.receipt import RECEIPT, receipt_path
from remap.types import Catalog


class Staging:
    """A destination that is being written. ``folder`` takes the files, ``commit`` puts them in place.

    Use as a context manager: leaving it without a commit removes everything.
    """

    def __init__(self, destination: Path, source: Catalog, *, single_file: bool, overwrite: bool) -> None:
        self.destination = _resolved(destination)
        self._single = single_file
        _check_apart(self.destination, source)
        _check_free(self.destination, single_file, overwrite)
        parent = self.destination.parent
        with _explained(self.destination):
            parent.mkdir(parents=True, exist_ok=True)
            _sweep(parent, self.destination.name)
            prefix = f".{self.destination.name}.remap-{_host()}-{os.getpid()}-"
            self.folder = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))

    def __enter__(self) -> Staging:
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def check_room(self, nbytes: int) -> None:
        """Raise DestinationError, with both numbers, where the disk has less than ``nbytes`` free."""
        free = shutil.disk_usage(self.folder).free
        if free < nbytes:
            raise DestinationError(
                f"the output takes {nbytes} bytes, the disk has {free} free",
                where=self.destination,
                remedy="free some room, or name a destination on another disk",
            )

    @contextmanager
    def writing(self) -> Iterator[Path]:
        """The folder to write to; what the system refuses there becomes a DestinationError."""
        with _explained(self.destination):
            yield self.folder

    def commit(self) -> None:
        """Rename the output to its destination, replacing what was there."""
        with _explained(self.destination):
            if self._single:
                name = self.destination.name
                os.replace(self.folder / RECEIPT, receipt_path(self.destination))
                os.replace(self.folder / name, self.destination)
            else:
                os.chmod(self.folder, 0o777 & ~_umask())
                self._replace_folder()
            _sync(self.destination.parent)

    def _replace_folder(self) -> None:
        old = None
        if self.destination.exists() and any(self.destination.iterdir()):
            old = Path(tempfile.mkdtemp(prefix=f"{self.folder.name}-old-", dir=self.destination.parent))
            os.rename(self.destination, old)
        os.rename(self.folder, self.destination)
        if old is not None:
            shutil.rmtree(old, ignore_errors=True)


def _resolved(destination: Path) -> Path:
    path = destination.expanduser()
    return path.parent.resolve() / path.name if path.name else path.resolve()


def _check_apart(destination: Path, source: Catalog) -> None:
    """Neither may lie in the other: a source is never written to."""
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


def _check_free(destination: Path, single_file: bool, overwrite: bool) -> None:
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
    if destination.is_dir() and not (destination / RECEIPT).is_file():
        raise DestinationError(
            "is a folder that remap did not write, so --overwrite does not remove it",
            where=destination,
            remedy="remove it yourself, or name another destination",
        )


@contextmanager
def _explained(destination: Path) -> Iterator[None]:
    try:
        yield
    except OSError as e:
        reasons = {
            errno.ENOSPC: "the disk is full",
            errno.EDQUOT: "the quota is used up",
            errno.EFBIG: "the file system or a limit allows no file of that size",
            errno.EACCES: "no permission to write there",
            errno.EPERM: "no permission to write there",
            errno.EROFS: "the file system is read-only",
        }
        raise DestinationError(
            f"{reasons.get(e.errno or 0, e.strerror or str(e))}; nothing was left behind",
            where=e.filename or destination,
            remedy="make room or name another destination",
        ) from None


def _sweep(parent: Path, name: str) -> None:
    """Remove what runs on this machine left when they were killed."""
    pattern = re.compile(rf"\.{re.escape(name)}\.remap-{re.escape(_host())}-(\d+)-.+")
    for path in parent.iterdir():
        found = pattern.fullmatch(path.name)
        if found and not _alive(int(found[1])):
            shutil.rmtree(path, ignore_errors=True)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _host() -> str:
    return re.sub(r"[^A-Za-z0-9_]", "_", socket.gethostname()) or "host"


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _sync(folder: Path) -> None:
    with contextlib.suppress(OSError):  # some network file systems refuse to sync a folder
        fd = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
