"""The whole flow on one screen: open -> catalog -> plan -> stream -> verify.

Every function takes a path (a file of a checkpoint, or its folder), a Checkpoint that ``open`` gave,
or its Catalog.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import remap.parallel as parallel
import remap.receipt as receipts
import remap.verify as checks
from remap.checkpoint import Checkpoint
from remap.differences import Difference, compare
from remap.dtypes import DType
from remap.dtypes import dtype as find_dtype
from remap.errors import UsageError
from remap.expr import Expr
from remap.files import locate
from remap.formats import registry
from remap.formats.base import Format, OutFile, WriteOptions
from remap.formats.companions import carried
from remap.output import Begin, How, What, write_output
from remap.packs import load
from remap.packs.language.pack import Pack
from remap.parallel import AS_FOUND, Settings
from remap.plan import Plan, make_plan
from remap.receipt import Parallel, Receipt
from remap.stream import MEMORY
from remap.types import Catalog, Entry

Source = str | Path | Catalog | Checkpoint
Rules = Iterable[str | Path] | str | Path
SUFFIXES = {
    ".safetensors": "safetensors",
    ".pt": "torch",
    ".pth": "torch",
    ".bin": "torch",
    ".ckpt": "torch",
}
"""A destination with one of these is one file of that format; any other is a folder."""


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


def catalog(
    source: Source,
    *,
    at: str | None = None,
    settings: Settings = AS_FOUND,
    params: Mapping[str, str] | None = None,
) -> Catalog:
    """What is known of a checkpoint without its data; reads headers only, runs nothing, imports no torch.

    Tensor-parallel ranks are merged, as ``settings`` and the ``params`` of a layout say.
    """
    found = _unmerged(source, at)
    return parallel.whole(found, _told(settings, params, found))


def _unmerged(source: Source, at: str | None) -> Catalog:
    if isinstance(source, Checkpoint):
        return source.catalog
    return source if isinstance(source, Catalog) else registry.open_catalog(locate(source), at=at)


def _told(settings: Settings, params: Mapping[str, str] | None, source: Catalog) -> Settings:
    """With what the user and the source's receipt say of layouts' parameters."""
    left = receipts.find(source)
    remembered = left.parallel.params if left and left.parallel else {}
    return replace(settings, params=params or {}, remembered=remembered)


def plan(
    source: Source,
    rules: Rules = (),
    *,
    inverse: bool = False,
    params: Mapping[str, str] | None = None,
    dtype: str | None = None,
    again: Iterable[str] = (),
    at: str | None = None,
    tolerant: bool = False,
    tp: int | None = None,
    settings: Settings = AS_FOUND,
) -> Plan:
    """What a conversion would do, key by key; no packs give the identity.

    rules    a pack, or packs in order: ``family/name`` or a path of a YAML file
    inverse  apply them backwards, the last first
    params   values of the packs' parameters, by name
    dtype    cast floating-point tensors to this type
    again    rules that may be applied to names that they already made
    tolerant what a conversion would refuse is among the plan's ``troubles`` instead of raised
    tp       how many tensor-parallel ranks are to be written; None for as many as the format has
    settings how tensor-parallel ranks are merged and divided
    """
    found = catalog(source, at=at, settings=settings, params=params)
    left = receipts.find(found)
    settings = _told(settings, params, found)
    found = parallel.known(found, settings) if tp else found
    packs = load_packs(rules)
    rider = parallel.rider(found, packs, settings) if found.ranks or tp else None
    return make_plan(
        found,
        packs,
        inverse=inverse,
        params=dict(params or {}),
        remembered={s.pack: s.params for s in left.steps} if left else {},
        again=frozenset(again),
        cast=_cast(dtype),
        tolerant=tolerant,
        ride=rider.classes if rider else None,
        spare=rider.params if rider else (),
    )


def load_packs(rules: Rules) -> list[Pack]:
    """The packs of a ``rules`` argument. Raises PackError."""
    return [load(str(r)) for r in ([rules] if isinstance(rules, (str, Path)) else rules)]


def _cast(dtype: object) -> DType | None:
    """The type that floats are cast to. Raises UsageError for one that can't hold weights."""
    found = find_dtype(str(dtype)) if dtype else None
    if found is not None and not found.is_float:
        raise UsageError(
            f"weights are not cast to {found.name}: it has no fractions, or no sign",
            remedy="use float32, bfloat16, float16, or a float8 type",
        )
    return found


def layout(
    plan: Plan,
    destination: str | Path,
    *,
    to: str | None = None,
    shard_size: int | None = None,
    tag: str | None = None,
    ranks: int | None = None,
    under: str | None = None,
    optimizer: bool = True,
    pp: int | None = None,
    tables: Sequence[Mapping[str, Expr]] | None = None,
) -> tuple[Format, list[OutFile]]:
    """The format and the files that ``convert`` would write at ``destination``; ``tables`` are the tensors of
    every rank, where they are divided. Raises UsageError."""
    path = locate(destination)
    suffix = SUFFIXES.get(path.suffix)
    fmt = registry.get(to or suffix or plan.catalog.format)
    if ranks is not None and fmt.name != "dcp":
        raise UsageError(f"{fmt.name} is not cut over ranks", remedy="write a DCP folder (--to dcp)")
    if under is not None and fmt.name not in ("dcp", "torch"):
        raise UsageError(
            f"{fmt.name} files do not nest", remedy="leave out --under, or write --to dcp or torch"
        )
    if suffix and to in SUFFIXES.values() and to != suffix:
        raise UsageError(
            f"{path.name} says {suffix} and --to says {to}", remedy="give the file another suffix, or no --to"
        )
    options = WriteOptions(shard_size, tag, path.name if suffix else None, ranks, under, optimizer, pp)
    whole = {o.key: o.expr for o in plan.outputs}
    if tables is None and pp is None:
        files = fmt.lay_out(whole, plan.catalog, options)
    else:
        files = parallel.ranked(fmt).lay_out_ranks(tables or [whole], plan.catalog, options)
    if suffix and len(files) > 1:
        raise UsageError(
            f"{len(files)} files are to be written, and {path.name} is one", remedy="name a folder"
        )
    return fmt, files if suffix else [*carried(plan.catalog.companions, plan.cast), *files]


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
    progress: Begin | None = None,
) -> Receipt:
    """Write the converted checkpoint at ``destination``, whole and checked, or nothing.

    to          format; by default what the destination's suffix says, else the source's own
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
    settings = _told(settings, params, made.catalog)
    made = parallel.placed(made, settings) if tp else made
    tables = parallel.spread(made, tp) if tp else None
    fmt, files = layout(
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
        notes=checks.check_copies(made.catalog, settings.copies),
        parallel=_said(made, tp, pp, settings) if tp or made.catalog.ranks else None,
    )
    written = parallel.rank_plan(made, tables) if tables else made
    how = How(jobs=jobs, memory=memory, sync=sync, overwrite=overwrite, resume=resume, progress=progress)
    return write_output(written, what, target, how, lambda path: _reopen(fmt, path, place))


def _said(made: Plan, tp: int | None, pp: int | None, settings: Settings) -> Parallel:
    """What the receipt remembers of ranks."""
    params = {**parallel.sizes(made), **settings.told} if tp else settings.told
    return Parallel(tp, pp, settings.layout, params, settings.copies, settings.padded)


def _left(source: Catalog, files: Iterable[OutFile]) -> list[str]:
    """What the source holds beside the tensors, and the output does not."""
    if any(f.carries for f in files):
        return [n for f in files for n in f.left]
    kept = {n for f in files for n in f.kept}
    return [n for n in source.extras if n not in kept]


def _reopen(fmt: Format, path: Path, at: str | None) -> Mapping[str, Entry]:
    (root,) = fmt.find(path)
    return fmt.open(root, at=at).entries


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
        problems += checks.check_digests(receipt, _replay(receipt, against, rules))
    return receipt, problems


def _written(destination: Source) -> Catalog:
    """The catalog of an output, of the tensors that its receipt says."""
    if isinstance(destination, (Catalog, Checkpoint)):
        return catalog(destination)
    left = receipts.beside(locate(destination))
    return _unmerged(destination, left.at if left else None)


def _replay(receipt: Receipt, source: Source, rules: Rules) -> Plan:
    if any(step.pack == receipts.BY_ADAPTER for step in receipt.steps):
        raise UsageError(
            "it was made by remap adapter, of which the receipt alone can't do the work again",
            where=receipt.source.name,
            remedy="make it once more elsewhere, and compare: remap diff A B",
        )
    packs = load_packs(rules) or [load(step.pack) for step in receipt.steps]
    if [p.digest for p in packs] != [s.digest for s in receipt.steps]:
        raise UsageError(
            "the packs are not those that the receipt names, or their contents changed",
            problems=[f"{s.pack} {s.version}" for s in receipt.steps],
            remedy="give the packs that made this output with -r",
        )
    how = receipt.parallel
    settings = Settings(how.layout, how.params, {}, how.copies, how.padded) if how else Settings()
    found = parallel.whole(_unmerged(source, receipt.source.at), settings)
    rider = parallel.rider(found, packs, settings) if how else None
    made = make_plan(
        found,
        packs,
        inverse=any(step.inverse for step in receipt.steps),
        remembered={step.pack: step.params for step in receipt.steps},
        again=receipt.again,
        cast=_cast(receipt.dtype),
        ride=rider.classes if rider else None,
    )
    if how is None or how.tp is None:
        return made
    return parallel.rank_plan(made, parallel.spread(parallel.placed(made, settings), how.tp))


def diff(a: Source, b: Source, *, values: bool = True) -> list[Difference]:
    """Every key in which two checkpoints differ, and how; [] where they are the same."""
    return compare(catalog(a), catalog(b), values=values)
