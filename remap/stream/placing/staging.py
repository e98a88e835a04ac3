"""An output exists only once it is whole: it is written in a room beside its destination, then renamed.

The room lies in the destination's parent, so that the rename stays on one file system. No file has its name
there before all are written. At the destination lies the old output, then the new; of a single file the old
receipt is taken away before, and the new one comes after, so that none lies beside what it does not describe.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from remap.errors import DestinationError, RemapError
from remap.receipt import RECEIPT, receipt_path
from remap.stream.placing.destination import check_apart, check_free, check_place, explained, resolved
from remap.stream.placing.journal import Journal
from remap.stream.placing.names import link, swap, sync_folder, sync_tree
from remap.stream.placing.room import Room
from remap.types import Catalog


class Staging:
    """A destination that is being written. ``folder`` takes the files, ``commit`` puts them in place.

    Use as a context manager: leaving it without a commit removes everything, or, with ``resume``, keeps what
    was written for the next run.

    key       which conversion it is (see ``fingerprint``)
    resume    go on with what a run of the same key has left
    sync      return only when the disk has it
    finished  True where that run had put its output in place already: nothing is left to do
    """

    def __init__(
        self,
        destination: Path,
        source: Catalog,
        *,
        single_file: bool,
        overwrite: bool,
        key: Mapping[str, str] | None = None,
        resume: bool = False,
        sync: bool = False,
    ) -> None:
        self.destination = resolved(destination)
        self._single = single_file
        self._overwrite = overwrite
        self._resume = resume
        self._sync = sync
        self._committed = self._halfway = False
        check_apart(self.destination, source)
        with explained(self.destination):
            check_place(self.destination)
            self.destination.parent.mkdir(parents=True, exist_ok=True)
            self._room = Room(self.destination, trusting=resume)
            self.journal = Journal(self._room.fd)
            put = self.journal.was_put(self.destination)
            self.finished = resume and put and self.journal.key == key
            try:
                self._begin(key or {}, put)
            except BaseException:
                self._drop(keep=self.journal.key is not None and not put)
                raise

    def _begin(self, key: Mapping[str, str], put: bool) -> None:
        """Settle what an earlier run left; then check, and go on or begin anew."""
        self._settle(put)
        if self.finished:
            return
        check_free(self.destination, self._single, self._overwrite)
        if self._resume and not put:
            self.journal.check(key, self.destination)
        if put or not self._resume or self.journal.key is None:
            self._room.empty()
            self.journal.begin(key)
        self.folder.mkdir(exist_ok=True)

    @property
    def folder(self) -> Path:
        """Where the files are to be written."""
        return self._room.files

    def _settle(self, put: bool) -> None:
        """A run that was killed between two steps of its commit: the output has its receipt, old or new."""
        receipt, written = receipt_path(self.destination), self.folder / RECEIPT
        if put and self._single and written.exists():
            os.replace(written, receipt)
        if not put and self._room.old.exists() and not os.path.lexists(self.destination):
            os.rename(self._room.old, self.destination)
        if not put and self._room.old_receipt.exists() and not receipt.exists():
            os.rename(self._room.old_receipt, receipt)

    def __enter__(self) -> Staging:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        done = self._committed or self.finished
        ours = isinstance(error, RemapError) and not isinstance(error, DestinationError)
        keep = self._halfway or (self._resume and not done and not ours)
        self._drop(keep)
        if isinstance(error, RemapError) and not keep and self._room.path.exists():
            error.problems = (*error.problems, f"{self._room.path} could not be removed")

    def _drop(self, keep: bool) -> None:
        if keep:
            self._room.keep()
        else:
            self._room.leave()

    def check_room(self, nbytes: int) -> None:
        """Raise DestinationError, with both numbers, where the disk has less than ``nbytes`` free; what an
        earlier run has written counts as free."""
        held = sum(p.stat().st_blocks * 512 for p in self.folder.rglob("*") if p.is_file())
        free = shutil.disk_usage(self.folder).free + held
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
            if self._sync:
                sync_tree(self.folder)
            written = self.folder / self.destination.name if self._single else self.folder
            self.journal.put(written, self._sync)
            if self._single:
                self._put_file(written)
            else:
                self._put_folder(written)
            if self._sync:
                sync_folder(self.destination.parent)
        self._committed = True

    def _put_file(self, written: Path) -> None:
        receipt = receipt_path(self.destination)
        if receipt.exists():
            os.rename(receipt, self._room.old_receipt)
        try:
            if self._overwrite:
                os.replace(written, self.destination)
            else:
                link(written, self.destination)
        except BaseException:
            self._settle(put=False)
            raise
        self._halfway = True  # the next run finds the receipt, should the system refuse it now
        os.replace(self.folder / RECEIPT, receipt)
        self._halfway = False

    def _put_folder(self, written: Path) -> None:
        if not (self._overwrite and self.destination.exists()):
            os.rename(written, self.destination)  # the system refuses a folder that is not empty
            return
        if swap(written, self.destination):
            return
        os.rename(self.destination, self._room.old)
        try:
            os.rename(written, self.destination)
        except BaseException:
            self._settle(put=False)
            raise
