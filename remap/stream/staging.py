"""An output exists only once it is whole: it is written beside its destination, then renamed.

The folder ``.NAME.remap-HOST-PID-xxxx`` is made in the destination's parent, so that the rename stays
on one file system. Nothing that a loader looks for lies in it before it is finished. A killed run
leaves that folder at most; the next run to the same destination sweeps it once it has succeeded.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from remap.errors import DestinationError
from remap.receipt import RECEIPT, receipt_path
from remap.stream.destination import check_apart, check_free, check_place, explained, resolved
from remap.types import Catalog


class Staging:
    """A destination that is being written. ``folder`` takes the files, ``commit`` puts them in place.

    Use as a context manager: leaving it without a commit removes everything.
    """

    def __init__(self, destination: Path, source: Catalog, *, single_file: bool, overwrite: bool) -> None:
        self.destination = resolved(destination)
        self._single = single_file
        self._overwrite = overwrite
        check_apart(self.destination, source)
        with explained(self.destination):
            _put_back(self.destination)
            check_place(self.destination)
            check_free(self.destination, single_file, overwrite)
            parent = self.destination.parent
            parent.mkdir(parents=True, exist_ok=True)
            self.folder = parent / f"{_prefix(self.destination)}{os.getpid()}-{secrets.token_hex(4)}"
            self.folder.mkdir()

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
        with explained(self.destination):
            yield self.folder

    def commit(self) -> None:
        """Rename the output to its destination. What has appeared there since is looked at once more:
        without ``overwrite`` nothing is ever replaced."""
        check_free(self.destination, self._single, self._overwrite)
        with explained(self.destination):
            if self._single:
                self._put_file()
            else:
                self._put_folder()
            _sync(self.destination.parent)
        _sweep(self.destination)

    def _put_file(self) -> None:
        written = self.folder / self.destination.name
        if self._overwrite:
            os.replace(written, self.destination)
        else:
            _link(written, self.destination)
        os.replace(self.folder / RECEIPT, receipt_path(self.destination))

    def _put_folder(self) -> None:
        if not (self._overwrite and self.destination.exists()):
            os.rename(self.folder, self.destination)  # the system refuses a folder that is not empty
            return
        old = self.folder.with_name(f"{self.folder.name}-old")
        os.rename(self.destination, old)
        try:
            os.rename(self.folder, self.destination)
        except OSError:
            os.rename(old, self.destination)
            raise
        shutil.rmtree(old, ignore_errors=True)


def _link(written: Path, destination: Path) -> None:
    """Give a file its name, in one step that fails where the name is taken."""
    try:
        os.link(written, destination)
    except FileExistsError:
        raise DestinationError(
            "something appeared there meanwhile", where=destination, remedy="name another destination"
        ) from None
    except OSError:  # a file system without hard links
        os.rename(written, destination)


def _prefix(destination: Path) -> str:
    host = re.sub(r"[^A-Za-z0-9_]", "_", socket.gethostname()) or "host"
    return f".{destination.name}.remap-{host}-"


def _leftovers(destination: Path) -> Iterator[Path]:
    """What runs on this machine left beside ``destination`` when they were killed."""
    pattern = re.compile(rf"{re.escape(_prefix(destination))}(\d+)-[0-9a-f]+(-old)?")
    if destination.parent.is_dir():
        for path in destination.parent.iterdir():
            found = pattern.fullmatch(path.name)
            if found and not _alive(int(found[1])):
                yield path


def _put_back(destination: Path) -> None:
    """A run that was killed between its two renames left the old output under another name."""
    if not os.path.lexists(destination):
        for path in _leftovers(destination):
            if path.name.endswith("-old"):
                os.rename(path, destination)
                return


def _sweep(destination: Path) -> None:
    for path in _leftovers(destination):
        shutil.rmtree(path, ignore_errors=True)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _sync(folder: Path) -> None:
    with contextlib.suppress(OSError):  # some network file systems refuse to sync a folder
        fd = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
