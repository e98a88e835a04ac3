"""A remote destination. There is no rename, so what is seen when is a matter of order:

1. every file is sent, and kept back by stores that can (S3, GCS: a multipart upload that isn't completed);
2. the files with tensors are completed, then those that make a checkpoint of them (index, ``latest``);
3. all of it is re-opened and checked;
4. the receipt is written. An output that has one was checked.

Whatever goes wrong before the receipt, all that was sent is removed.
"""

from __future__ import annotations

from collections.abc import Sequence

from remap.errors import DestinationError, RemapError, UsageError
from remap.executors.base import Workers
from remap.files import store
from remap.files.remote import RemotePath
from remap.files.writing import Output, check_writable, put, remove
from remap.formats.base import OutFile
from remap.receipt import RECEIPT
from remap.stream.placing.destination import check_apart
from remap.stream.run import Written
from remap.stream.sink import Progress
from remap.stream.uploading.write import holds_tensors, send_elsewhere, send_files
from remap.types import Catalog


class Upload:
    """A remote destination that is being written. ``folder`` takes the files.

    Use as a context manager: leaving it without ``finish`` removes everything.

    Raises DestinationError where something is there already: nothing can be replaced in one step.
    """

    def __init__(self, destination: RemotePath, source: Catalog, *, single_file: bool) -> None:
        self.destination = destination
        self.folder = destination.parent if single_file else destination
        self._receipt = self.folder / (f"{destination.name}.receipt.json" if single_file else RECEIPT)
        self._begun: list[Output] = []
        self._seen: list[RemotePath] = []
        self._finished = False
        check_writable(destination)
        check_apart(destination, source)
        self._check_free(single_file)

    def _check_free(self, single_file: bool) -> None:
        store.forget(self.destination)
        there = [p for p in (self.destination, self._receipt) if p.is_file()]
        names = [str(p) for p in there] if single_file else list(store.names(self.destination))
        if names:
            raise DestinationError(
                "exists already; a store can't replace many files in one step, so nothing there is touched",
                where=self.destination,
                problems=names,
                remedy="name another destination, or remove it first",
            )

    def __enter__(self) -> Upload:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if self._finished:
            return
        for output in self._begun:
            output.discard()
        left = [str(p) for p in self._seen if not remove(p)]
        if left and isinstance(error, RemapError):
            error.problems = (*error.problems, *(f"{p} could not be removed" for p in left))

    def write(
        self,
        files: Sequence[OutFile],
        *,
        jobs: int | None,
        memory: int,
        progress: Progress,
        workers: Workers | None = None,
    ) -> Written:
        """Send ``files`` and let them be seen. Raises UsageError, Damaged, DestinationError.

        workers  who sends the files with tensors; they can keep nothing back for this process to complete
        """
        if workers:
            large = [f for f in files if holds_tensors(f)]
            self._seen += [self.folder / f.name for f in large]
            sent = send_elsewhere(large, self.folder, workers, memory=memory, jobs=jobs, progress=progress)
            rest = [f for f in files if not holds_tensors(f)]
            self.write(rest, jobs=jobs, memory=memory, progress=progress)
            return Written(sent, {f.name: f.nbytes for f in files})
        written = send_files(files, self.folder, self._begin, jobs=jobs, memory=memory, progress=progress)
        outputs = {o.path: o for o in self._begun}
        for file in sorted(files, key=holds_tensors, reverse=True):
            outputs[self.folder / file.name].commit()
        self._begun.clear()
        store.forget(self.destination)
        return written

    def _begin(self, output: Output) -> None:
        self._seen.append(output.path)
        self._begun.append(output)

    def finish(self, receipt: bytes) -> None:
        """Write the receipt: the output is whole and was checked."""
        self._seen.append(self._receipt)
        put(self._receipt, receipt)
        self._finished = True


def check_options(overwrite: bool, resume: bool) -> None:
    """Raise UsageError for what is not done at remote places."""
    if overwrite or resume:
        raise UsageError(
            f"{'--overwrite' if overwrite else '--resume'} is for destinations of this machine",
            remedy="remove what lies there, and write it anew",
        )
