"""The ``metaseq`` format: any file of a checkpoint stands for all of it, merged and unflattened.

    singleton             reshard.pt
    model parts           reshard-model_part-{j}.pt
    shards of parts       checkpoint_last-model_part-{j}-shard{i}.pt
    shards without parts  checkpoint_last-shard{i}.pt
    experts               checkpoint_last-rank-{r}-shard{r}.pt, beside any shards

The catalog has the tensors of the whole model by name; ``stored`` has those that the files hold. Written
is a singleton; ``remap reshard`` makes the other kinds of it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from remap.errors import UsageError
from remap.expr import Expr, Take
from remap.formats.base import AS_IT_LIES, OutFile, ReadOptions, WriteOptions
from remap.formats.companions import companions, read_config
from remap.formats.metaseq.checkpoint import Checkpoint, place_of, read_checkpoint, whole_file
from remap.formats.metaseq.description import in_transformers
from remap.formats.metaseq.experts import join, rank_files
from remap.formats.metaseq.files.names import family, leftovers, parse
from remap.formats.metaseq.files.shards import OPTIMIZER, Place, State, is_metaseq
from remap.formats.metaseq.optimizer.by_weight import optimizer_by_weight
from remap.formats.metaseq.partition import Divider, load_partition
from remap.formats.metaseq.writing.file import file_key
from remap.formats.metaseq.writing.singleton import singleton
from remap.formats.torch import file as torch_file
from remap.types import Catalog, Entry

NAME = "reshard.pt"
"""What metaseq calls a file that nothing is split in."""


class Metaseq:
    """The ``metaseq`` format: see the module's docstring."""

    name = "metaseq"
    title = "metaseq (OPT) checkpoint: model parts, fairscale FSDP shards"

    def find(self, path: Path) -> Sequence[Path]:
        """The first file of every checkpoint at ``path``: a folder, or any file of one."""
        if path.is_dir():
            return _find_in(path)
        name = parse(path.name.lstrip("_"))
        if name is None or not path.is_file() or not _is_one(path, name.numbered):
            return []
        return [path] if path.name.startswith("_") else [family(path).first]

    def claims(self, root: Path) -> Collection[Path]:
        """Every file that belongs to the checkpoint at ``root``: leftovers of copies among them, and what
        links point at."""
        files = [*family(root).files.values(), *rank_files(root)]
        return {*files, *(f.parent / f.readlink() for f in files if f.is_symlink()), *leftovers(root)}

    def open(self, path: Path, *, at: str | None = None) -> Catalog:
        """``open_merged`` without options."""
        return self.open_merged(path, AS_IT_LIES, at=at)

    def open_merged(self, path: Path, options: ReadOptions, *, at: str | None = None) -> Catalog:
        """Read the headers of every file; all tensors of the model, merged and unflattened.

        at  ``extra_state.ema`` for a running average instead of the model

        Raises InputError: files that are missing or do not belong together, names that can't be merged.
        """
        checkpoint = read_checkpoint(path)
        place = place_of(checkpoint, at)
        one = whole_file(checkpoint)
        if one is not None:
            file = torch_file.read(one, at=".".join(place))
            catalog = catalog_of(checkpoint, dict(file.entries), native=(file,))
        else:
            how = checkpoint.divider(load_partition(options.partition), copies=options.copies)
            catalog = catalog_of(
                checkpoint, merged_entries(checkpoint, place, how), native=checkpoint, divider=how
            )
        return _with_experts(catalog, path, place)

    def lay_out(self, tensors: Mapping[str, Expr], source: Catalog, options: WriteOptions) -> list[OutFile]:
        """A singleton: everything in one file, in the likeness of the source's first where it has one."""
        if not tensors:
            raise UsageError("there is no tensor to be written")
        like = source.native if isinstance(source.native, Checkpoint) else None
        return [singleton(options.name or NAME, tensors, source, like, optimizer=options.optimizer)]


FORMAT = Metaseq()


def merged_entries(checkpoint: Checkpoint, place: Place, how: Divider) -> dict[str, Entry]:
    """The tensors of the whole model by name, where files hold parts of them. Raises InputError."""
    entries: dict[str, Entry] = {}
    for key, expr in checkpoint.merged(how, place).items():
        assert isinstance(expr, Take)
        entries[key] = Entry(key, expr.spec, expr.entry.location)
    return entries


def _with_experts(catalog: Catalog, path: Path, place: Place) -> Catalog:
    """With the experts that lie beside the shared weights, or a warning why these are not joined."""
    ranks = {p: read_checkpoint(p) for p in rank_files(path)}
    if not ranks:
        return catalog
    held = {
        p: merged_entries(c, place, c.divider()) if place in c.parts[0].trees else {}
        for p, c in ranks.items()
    }
    found = join(catalog.entries, held)
    return replace(
        catalog,
        entries={**catalog.entries, **found.entries},
        files=tuple(sorted([*catalog.files, *(found.files if found.warning is None else ())])),
        warnings=(*catalog.warnings, *([found.warning] if found.warning else ())),
    )


def _is_one(path: Path, numbered: bool) -> bool:
    """True where the content is metaseq's, or broken: a shard that is broken is opened to say so."""
    if torch_file.is_torch(path):
        return is_metaseq(path, numbered=numbered)
    with path.open("rb") as f:
        return numbered and f.read(4) == b"PK\x03\x04"


def _find_in(folder: Path) -> list[Path]:
    found: list[Path] = []
    taken: set[Path] = set()
    targets: set[Path] = set()
    experts = {rank for path in folder.glob("*.pt") for rank in rank_files(path)}
    for path in sorted(folder.glob("*.pt"), key=lambda p: (not p.is_symlink(), p.name)):
        name = parse(path.name)
        if path in taken or path in experts or name is None or not path.is_file():
            continue
        if not _is_one(path, name.numbered):
            continue
        files = family(path)
        taken |= set(files.files.values())
        first = files.first.resolve()
        if first not in targets:  # checkpoint_last-* are links to checkpoint_100-*
            targets.add(first)
            found.append(files.first)
    return found


def catalog_of(
    checkpoint: Checkpoint,
    entries: Mapping[str, Entry],
    native: object = None,
    *,
    stored: bool = True,
    divider: Divider | None = None,
) -> Catalog:
    """The catalog of a checkpoint that was read; ``stored`` also for one of a single file. ``divider`` says
    how moments are merged."""
    path = checkpoint.family.first
    first = checkpoint.parts[0].shards[0]
    return Catalog(
        format=Metaseq.name,
        root=path,
        files=tuple(sorted(s.path for p in checkpoint.parts for s in p.shards)),
        entries=entries,
        config=read_config(path.parent) or in_transformers(first.config.model, entries),
        companions=companions(path.parent),
        extras=first.extras,
        opaque=tuple(sorted({c for p in checkpoint.parts for s in p.shards for c in s.opaque})),
        warnings=checkpoint.warnings,
        native=native,
        peek=lambda name: torch_file.read(first.path, at="model", state_dict=False).plain(name),
        stored=dict(_stored(checkpoint)) if stored else {},
        optimizer=partial(optimizer_by_weight, checkpoint, divider) if OPTIMIZER in first.extras else None,
    )


def _stored(checkpoint: Checkpoint) -> Iterator[tuple[str, Entry]]:
    """Every tensor that the files hold, by file and place."""
    for part in checkpoint.parts:
        for shard in part.shards:
            for place, tree in shard.trees.items():
                for key, entry in tree.items():
                    yield file_key(shard.path.name, *place, key), entry
            if isinstance(shard.optimizer, State):
                for index, slots in shard.optimizer.slots.items():
                    for slot, entry in slots.items():
                        yield file_key(shard.path.name, OPTIMIZER, "state", str(index), slot), entry


__all__ = ["FORMAT", "Metaseq", "catalog_of"]
