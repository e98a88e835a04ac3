"""What torch saved of every rank, cut anew over others: a DCP folder, whatever it was before.

DCP loads on any number of ranks; cut to their number, each reads no more than its own file. From a DCP folder
everything comes along, its moments cut like their weights. From rank files the model does, and its
optimizer's state where it lies in the same files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from remap.errors import UsageError
from remap.expr import Cast, Expr, Take
from remap.formats import registry
from remap.formats.base import OutFile, WriteOptions
from remap.formats.companions import carried
from remap.formats.dcp.metadata import Path_
from remap.formats.dcp.optimizer import is_optimizer
from remap.formats.dcp.reader import Folder
from remap.output import How, What, write_output
from remap.plan import Output, Plan
from remap.receipt import Receipt
from remap.reshard.wanted import Wanted
from remap.types import Catalog, Entry

DCP = "dcp"


def recut(root: Path, path: Path, wanted: Wanted, how: How) -> Receipt:
    """Write the checkpoint at ``root`` as a DCP folder of ``wanted.fsdp`` ranks at ``path``."""
    _check(wanted)
    catalog = _open(root)
    if wanted.optimizer_dtype and not isinstance(catalog.native, Folder):
        raise UsageError(
            "moments of rank files are not cast", remedy="reshard the DCP folder that is written"
        )
    tensors = _tensors(catalog, wanted)
    at = "" if isinstance(catalog.native, Folder) else None
    fmt = registry.get(DCP)
    files = fmt.lay_out(tensors, catalog, WriteOptions(ranks=wanted.fsdp, optimizer=wanted.optimizer))
    what = What(
        format=DCP,
        files=[*carried(catalog.companions), *files],
        single=False,
        left=_left(catalog, files),
        at=at,
    )
    outputs = [Output(k, e, "", (k,), "reshard") for k, e in tensors.items()]
    plan = Plan(catalog=catalog, outputs=tuple(outputs))

    def reopen(written: Path) -> Mapping[str, Entry]:
        return fmt.open(written, at=at).entries

    return write_output(plan, what, path, how, reopen)


def _left(catalog: Catalog, files: Sequence[OutFile]) -> list[str]:
    """What does not come along, by its name in the source."""
    if isinstance(catalog.native, Folder):
        return [n for f in files for n in f.left]
    kept = {n for f in files for n in f.kept}
    return [n for n in catalog.extras if n not in kept]


def _check(wanted: Wanted) -> None:
    """Raise UsageError where something is asked for that there is none of."""
    said = {"--tp": wanted.tp, "--unflatten": wanted.unflatten, "--partition": wanted.settings.partition}
    odd = [name for name, value in said.items() if value]
    if odd:
        raise UsageError(
            f"{', '.join(odd)} is for metaseq checkpoints: torch saves tensors whole, under their own names",
            remedy="leave it out",
        )
    if wanted.fsdp is None:
        raise UsageError("it is not said over how many ranks", remedy="give --fsdp N")


def _open(root: Path) -> Catalog:
    """All of a DCP folder, the model of rank files."""
    fmt = next(f for f, found in registry.find(root) if found == root)
    return fmt.open(root, at="" if fmt.name == DCP else None)


def _tensors(catalog: Catalog, wanted: Wanted) -> dict[str, Expr]:
    paths = catalog.native.metadata.paths if isinstance(catalog.native, Folder) else {}
    out: dict[str, Expr] = {}
    for key, entry in catalog.entries.items():
        path: Path_ = paths.get(key, ("", key))
        moment = is_optimizer(path)
        if moment and not wanted.optimizer:
            continue
        dtype = wanted.optimizer_dtype if moment else wanted.dtype
        cast = dtype is not None and entry.spec.dtype.is_float and not (moment and path[-1] == "step")
        out[key] = Cast(Take(entry), dtype) if cast and dtype else Take(entry)
    return out
