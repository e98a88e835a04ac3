"""The folder beside a destination in which its output is written: one run at a time, told by a lock.

    .NAME.remap/
        journal        locked for as long as the run lives
        files-XXXX/    the output; another name for each that is begun, so that a worker of a killed run
                       never writes into that of the next
        old            what the output replaces, where that takes more than one step
        receipt.old    the receipt of the file that is replaced

A killed run leaves it, and the system lets go of its lock; the next run to the same destination goes on from
there (``--resume``) or sweeps it.
"""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import shutil
import stat
from pathlib import Path

from remap.errors import DestinationError

JOURNAL, FILES, OLD, OLD_RECEIPT = "journal", "files-", "old", "receipt.old"
UNLOCKABLE = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL}
"""What a file system says that has no locks."""


class Room:
    """The room of ``destination``, made or found, and locked. ``fd`` is its journal.

    Raises DestinationError where another run has it. ``trusting`` takes one that was left on a file system
    without locks.
    """

    def __init__(self, destination: Path, *, trusting: bool = False) -> None:
        self.path = room_of(destination)
        self.old, self.old_receipt = self.path / OLD, self.path / OLD_RECEIPT
        made = self._make()
        self.fd = self._open(made or trusting, destination)
        self.files = min(self.path.glob(f"{FILES}*"), default=self._anew())

    def _anew(self) -> Path:
        return self.path / f"{FILES}{secrets.token_hex(4)}"

    def _make(self) -> bool:
        try:
            self.path.mkdir()
        except FileExistsError:
            found = self.path.lstat()
            if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
                raise DestinationError(
                    "is in the way: no folder, or another user's", where=self.path, remedy="move it away"
                ) from None
            return False
        return True

    def _open(self, free: bool, destination: Path) -> int:
        journal = self.path / JOURNAL
        while True:
            self.path.mkdir(exist_ok=True)  # another run may have finished and removed it
            fd = os.open(journal, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
            try:
                self._lock(fd, free, destination)
            except DestinationError:
                os.close(fd)
                raise
            if journal.exists() and os.path.samestat(os.fstat(fd), journal.stat()):
                return fd
            os.close(fd)  # locked as it was removed

    def _lock(self, fd: int, free: bool, destination: Path) -> None:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise DestinationError(
                "another run is writing it",
                where=destination,
                remedy="wait for it, or name another destination",
            ) from None
        except OSError as e:
            if e.errno not in UNLOCKABLE:
                raise
            if not free:
                raise DestinationError(
                    "another run may be writing it, and this file system has no locks to tell",
                    where=destination,
                    remedy=f"if none is, remove {self.path}, or give --resume to go on with it",
                ) from None

    def empty(self) -> None:
        """Remove all but the journal; the output gets another place."""
        for path in (*self.path.glob(f"{FILES}*"), self.old):
            shutil.rmtree(path, ignore_errors=True)
        self.old_receipt.unlink(missing_ok=True)
        self.files = self._anew()

    def leave(self) -> None:
        """Remove everything, the journal last, as far as the system lets us; and let go of the lock."""
        try:
            self.empty()
            if not any(self.path.glob(f"{FILES}*")):
                (self.path / JOURNAL).unlink(missing_ok=True)
                self.path.rmdir()
        except OSError:
            pass  # ``left`` tells
        finally:
            os.close(self.fd)

    def keep(self) -> None:
        """Let go of the lock, and leave everything for the next run."""
        os.close(self.fd)


def room_of(destination: Path) -> Path:
    """The folder in which ``destination`` is written."""
    return destination.with_name(f".{destination.name}.remap")
