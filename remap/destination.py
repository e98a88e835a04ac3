"""A plan and a destination -> the files that are to be written there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import remap.parallel as parallel
from remap.errors import UsageError
from remap.expr import Expr
from remap.files import locate
from remap.formats import registry
from remap.formats.base import Format, OutFile, Ranked, WriteOptions
from remap.formats.companions import CONFIG, carried, described
from remap.formats.undivided import Undivided
from remap.packs import recognised
from remap.plan import Plan

SUFFIXES = {
    ".safetensors": "safetensors",
    ".pt": "torch",
    ".pth": "torch",
    ".bin": "torch",
    ".ckpt": "torch",
}
"""A destination with one of these is one file of that format; any other is a folder."""


def laid_out(
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
    fmt = registry.get(to or suffix or _by_default(plan))
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
    classes = {o.key: o.partition for o in plan.outputs if o.partition is not None}
    if isinstance(fmt, Undivided):
        files = fmt.lay_out_for(whole, classes, tables or [whole], plan.catalog, options)
    elif tables is None and pp is None:
        files = fmt.lay_out(whole, plan.catalog, options)
    else:
        files = parallel.ranked(fmt).lay_out_ranks(tables or [whole], plan.catalog, options)
    if suffix and len(files) > 1:
        raise UsageError(
            f"{len(files)} files are to be written, and {path.name} is one", remedy="name a folder"
        )
    return fmt, files if suffix else [*_around(plan), *files]


def _around(plan: Plan) -> list[OutFile]:
    """What describes the model: the source's files. Without a ``config.json`` among them, what the checkpoint
    itself says in one's place, where a pack gave its tensors the names that transformers has."""
    found = carried(plan.catalog.companions, plan.cast)
    config = plan.catalog.config
    if not plan.steps or "model_type" not in config or any(f.name == CONFIG for f in found):
        return found
    names = [layout.name for layout in recognised(o.key for o in plan.outputs)]
    return [described(config), *found] if f"{config['model_type']}/hf" in names else found


def _by_default(plan: Plan) -> str:
    """The source's own format; where packs gave a training run other names, what their layout says."""
    own = plan.catalog.format
    if plan.steps and isinstance(registry.get(own), (Ranked, Undivided)):
        said = {layout.format for layout in recognised(o.key for o in plan.outputs)} - {None}
        return said.pop() or own if len(said) == 1 else own
    return own
