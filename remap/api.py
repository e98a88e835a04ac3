"""The whole flow on one screen: open -> catalog -> plan -> stream -> verify.

Every function takes a path (a file of a checkpoint, or its folder), a Checkpoint that ``open`` gave,
or its Catalog.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import Executor
from functools import partial
from pathlib import Path

import remap.parallel as parallel
import remap.receipt as receipts
import remap.verify as checks
from remap.checkpoint import Checkpoint
from remap.comparing.copies import check_copies
from remap.comparing.differences import Difference, compare
from remap.destination import SUFFIXES, laid_out
from remap.errors import UsageError
from remap.files import locate
from remap.formats.base import OutFile, Ranked
from remap.opening import Source, catalog, told, unmerged
from remap.output import Begin, How, What, reopened, write_output
from remap.parallel import AS_FOUND, Settings
from remap.plan import Plan
from remap.planning import Rules, plan, replayed
from remap.receipt import Parallel, Receipt
from remap.stream import MEMORY
from remap.types import Catalog

__all__ = ["catalog", "convert", "diff", "open", "plan", "verify"]


def open(
    source: Source,
    *,
    at: str | None = None,
    params: Mapping[str, str] | None = None,
    settings: Settings = AS_FOUND,
) -> Checkpoint:
    """The checkpoint at ``source``, a lazy mapping of key to tensor: headers are read, tensors when
    asked for.

    at        where the state dict lies in a torch file (``model.encoder``), if that is ambiguous
    params    of the layout that says how tensor-parallel ranks are merged, where the files don't say them
    settings  which layout that is, and what copies that differ become
    """
    return Checkpoint(catalog(source, at=at, settings=settings, params=params))


def convert(
    source: Source,
    destination: str | Path,
    rules: Rules = (),
    *,
    to: str | None = None,
    inverse: bool = False,
    params: Mapping[str, str] | None = None,
    dtype: str | None = None,
    again: Iterable[str] = (),
    at: str | None = None,
    shard_size: int | None = None,
    tag: str | None = None,
    ranks: int | None = None,
    under: str | None = None,
    optimizer: bool = True,
    tp: int | None = None,
    pp: int | None = None,
    settings: Settings = AS_FOUND,
    jobs: int | None = None,
    memory: int = MEMORY,
    sync: bool = False,
    overwrite: bool = False,
    resume: bool = False,
    executor: str | Executor | None = None,
    progress: Begin | None = None,
) -> Receipt:
    """Write the converted checkpoint at ``destination``, whole and checked, or nothing.

    to          format; by default what the destination's suffix says, else the source's own, or what the
                layout says that a training run goes to
    shard_size  largest file in bytes
    ranks       ranks that every tensor is cut over, a file each (DCP)
    under       where in the output the state dict is to lie, ``app.model`` (DCP, torch)
    optimizer   False leaves the optimizer's state behind, where the output could have it
    tp, pp      tensor-parallel ranks and pipeline stages that are to load it (DeepSpeed, Megatron)
    settings    how ranks are merged and divided
    memory      bytes that computed tensors may take together
    sync        return only when the disk has it: slower, and safe against a power cut
    resume      go on with what a run that was killed has written of the same conversion; keep what is
                written for the next run, should this one be stopped, too
    executor    who writes: ``threads`` of this process (the default), ``processes``, ``dask://host:port``,
                ``mpi``, or an executor of ``concurrent.futures``
    progress    called with (number of files, bytes); gives the function that is told of bytes written

    The other arguments are those of ``plan``. Gives the receipt, which lies beside the output.
    """
    made = plan(
        source,
        rules,
        inverse=inverse,
        params=params,
        dtype=dtype,
        again=again,
        at=at,
        tp=tp,
        settings=settings,
    )
    target = locate(destination)
    if not made.outputs:
        raise UsageError("nothing is left to write: every tensor is dropped", where=made.catalog.root)
    settings = told(settings, params, receipts.find(made.catalog))
    made = parallel.placed(made, settings) if tp else made
    tables = parallel.spread(made, tp) if tp else None
    fmt, files = laid_out(
        made,
        destination,
        to=to,
        shard_size=shard_size,
        tag=tag,
        ranks=ranks,
        under=under,
        optimizer=optimizer,
        pp=pp,
        tables=tables,
    )
    carries = any(f.carries for f in files)
    place = under or None if under is not None else made.catalog.at if carries else None
    what = What(
        format=fmt.name,
        files=files,
        single=target.suffix in SUFFIXES,
        left=_left(made.catalog, files),
        at=place,
        again=tuple(again),
        notes=check_copies(made.catalog, settings.copies),
        parallel=_said(made, tp, pp, settings),
    )
    written = parallel.rank_plan(made, tables) if tables and isinstance(fmt, Ranked) else made
    how = How(
        jobs=jobs,
        memory=memory,
        sync=sync,
        overwrite=overwrite,
        resume=resume,
        executor=executor,
        progress=progress,
    )
    return write_output(written, what, target, how, partial(reopened, fmt, at=place))


def _said(made: Plan, tp: int | None, pp: int | None, settings: Settings) -> Parallel | None:
    """What the receipt remembers of ranks and model parts: how they are divided, what copies became."""
    if not (tp or made.catalog.partitions) and settings.copies == AS_FOUND.copies:
        return None
    params = {**parallel.sizes(made), **settings.told} if tp else settings.told
    return Parallel(tp, pp, settings.layout, params, settings.copies, settings.padded)


def _left(source: Catalog, files: Iterable[OutFile]) -> list[str]:
    """What the source holds beside the tensors, and the output does not."""
    if any(f.carries for f in files):
        return [n for f in files for n in f.left]
    kept = {n for f in files for n in f.kept}
    return [n for n in source.extras if n not in kept]


def verify(
    destination: Source, *, against: Source | None = None, rules: Rules = ()
) -> tuple[Receipt, list[str]]:
    """Re-read an output: its receipt, and one line for each file and tensor that departs from it.

    against  the source: the packs of the receipt are applied to it once more, and the digests of
             what they give are compared, too
    rules    those packs, where they can't be found by their names
    """
    found = _written(destination)
    located = receipts.locate(found)
    if located is None:
        raise UsageError(
            "no receipt lies beside it, so there is nothing to check it against",
            where=found.root,
            remedy="compare it with another checkpoint: remap diff A B",
        )
    receipt, folder = located
    held = checks.held_by(found, receipt)
    problems = [*checks.check_files(receipt, folder, held), *checks.check_receipt(receipt, found)]
    if against is not None and checks.held_by(found, receipt) is found.stored and not receipt.parallel:
        problems += [f"{d.key}: {d.verdict}: {d.detail}" for d in compare(catalog(against), found)]
    elif against is not None:
        problems += checks.check_digests(receipt, replayed(receipt, against, rules))
    return receipt, problems


def _written(destination: Source) -> Catalog:
    """The catalog of an output, of the tensors that its receipt says."""
    if isinstance(destination, (Catalog, Checkpoint)):
        return catalog(destination)
    left = receipts.beside(locate(destination))
    return unmerged(destination, left.at if left else None)


def diff(a: Source, b: Source, *, values: bool = True) -> list[Difference]:
    """Every key in which two checkpoints differ, and how; [] where they are the same."""
    return compare(catalog(a), catalog(b), values=values)
