"""A plan and its files -> an output at its destination, whole and checked, or nothing there at all."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path

import remap.receipt as receipts
from remap.comparing.digests import digests as digests_of
from remap.comparing.digests import other_bytes
from remap.errors import Damaged
from remap.executors.registry import find as find_workers
from remap.expr import Take
from remap.expr.ties import tied_outputs
from remap.files import is_remote, refresh
from remap.formats.base import Format, OutFile
from remap.plan import Plan
from remap.receipt import Receipt
from remap.stream import MEMORY, Staging, Written, room, write_files
from remap.stream.placing.fingerprint import Stamp, fingerprint, stamp
from remap.stream.placing.names import put_file
from remap.stream.run import default_jobs
from remap.types import Catalog, Entry, find_ties
from remap.verify import check_headers

Begin = Callable[[int, int], Callable[[int], None]]
"""Called with (number of files, bytes); gives the function that is told of bytes written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class How:
    """How an output is written: see ``api.convert``."""

    jobs: int | None = None
    memory: int = MEMORY
    sync: bool = False
    overwrite: bool = False
    resume: bool = False
    executor: str | Executor | None = None
    progress: Begin | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class What:
    """What is written.

    format  its name
    files   laid out
    single  one file, not a folder
    left    what the source holds and the output does not
    at      where in the output the tensors lie, None where they are found
    again   rules that were applied to names that they made
    notes   warnings of this conversion
    ties    outputs that are made of one tensor are meant to stay one
    parallel  how it is divided over ranks
    """

    format: str
    files: Sequence[OutFile]
    single: bool
    left: Sequence[str] = ()
    at: str | None = None
    again: Sequence[str] = ()
    notes: Sequence[str] = ()
    ties: bool = True
    parallel: receipts.Parallel | None = None


def write_output(
    plan: Plan, what: What, destination: Path, how: How, reopen: Callable[[Path], Mapping[str, Entry]]
) -> Receipt:
    """Write ``what`` at ``destination`` and check it against ``plan``.

    reopen  reads the headers of what was written, at the path given to it

    Raises DestinationError, UsageError, Damaged, VerifyError; the destination is as it was then.
    """
    workers = find_workers(how.executor, how.jobs or default_jobs()) if how.executor else None
    before = _stamps(plan.catalog)
    if is_remote(destination):
        from remap.stream.uploading import Upload, check_options

        check_options(how.overwrite, how.resume)
        with Upload(destination, plan.catalog, single_file=what.single) as upload:
            written = upload.write(
                what.files,
                jobs=how.jobs,
                memory=how.memory,
                progress=_progress(how, what.files),
                workers=workers,
            )
            receipt = _checked(plan, what, written, upload.folder, reopen(destination), before)
            upload.finish(receipt.encode())
        return receipt
    with Staging(
        destination,
        plan.catalog,
        single_file=what.single,
        overwrite=how.overwrite,
        key=fingerprint(plan, what.files, what.again),
        resume=how.resume,
        sync=how.sync,
    ) as staging:
        if staging.finished:
            return receipts.read(receipts.receipt_path(staging.destination))
        staging.check_room(room(what.files, staging.folder))
        with staging.writing() as folder:
            written = write_files(
                what.files,
                folder,
                jobs=how.jobs,
                memory=how.memory,
                sync=how.sync,
                progress=_progress(how, what.files),
                journal=staging.journal,
                workers=workers,
            )
            output = reopen(folder / destination.name if what.single else folder)
            receipt = _checked(plan, what, written, folder, output, before)
            put_file(folder / receipts.RECEIPT, receipt.encode(), how.sync)
        staging.commit()
    return receipt


def reopened(fmt: Format, path: Path, at: str | None = None) -> Mapping[str, Entry]:
    """What was written at ``path``, by its headers: the ``reopen`` of ``write_output`` for a format."""
    (root,) = fmt.find(path)
    return fmt.open(root, at=at).entries


def _progress(how: How, files: Sequence[OutFile]) -> Callable[[int], None]:
    return how.progress(len(files), sum(f.nbytes for f in files)) if how.progress else lambda n: None


def _checked(
    plan: Plan,
    what: What,
    written: Written,
    folder: Path,
    output: Mapping[str, Entry],
    before: Mapping[Path, Stamp],
) -> Receipt:
    """The receipt of what was written into ``folder``, of which ``output`` was re-opened. Raises VerifyError,
    Damaged where the source is not as it was ``before``."""
    check_headers(plan, output)
    _check_unchanged(before, _stamps(plan.catalog))
    rest = {o.key: Take(output[o.key]) for o in plan.outputs if o.key not in written.digests}
    digests = {**written.digests, **digests_of(rest)}
    untied = [] if what.parallel or not what.ties else _untied(plan, output, what.format)
    return receipts.make(
        plan,
        what.format,
        digests,
        _files(what.files, folder, [output[o.key] for o in plan.outputs]),
        what.left,
        what.at,
        what.again,
        [*what.notes, *untied],
        what.parallel,
    )


def _files(files: Sequence[OutFile], folder: Path, tensors: Iterable[Entry]) -> dict[str, receipts.File]:
    """Sizes of all files, and digests of what they hold beside the tensors."""
    found = other_bytes({f.name: folder / f.name for f in files}, tensors)
    return {f.name: receipts.File(f.nbytes, found[f.name]) for f in files}


def _untied(plan: Plan, output: Mapping[str, Entry], fmt: str) -> list[str]:
    """Ties of the source that the output has not."""
    lost = len(tied_outputs({o.key: o.expr for o in plan.outputs})) - len(find_ties(output.values()))
    one = "1 tensor that was tied to another is"
    many = one if lost == 1 else f"{lost} tensors that were tied to others are"
    return [f"{many} written in full: {fmt} files keep no such ties"] * (lost > 0)


def _stamps(catalog: Catalog) -> dict[Path, Stamp]:
    """What tells of every source file whether it was changed."""
    refresh(catalog.files)
    return {f: stamp(f) for f in catalog.files}


def _check_unchanged(before: Mapping[Path, object], after: Mapping[Path, object]) -> None:
    changed = [str(f) for f, stamp in before.items() if after.get(f) != stamp]
    if changed:
        raise Damaged(
            "the source was changed while it was read, so the output may be of two minds; it was discarded",
            problems=changed,
            remedy="convert it again once nothing writes to it",
        )
