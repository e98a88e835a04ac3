"""Other parts, other shards: the files of a checkpoint that holds what another one does, cut anew.

In: a Checkpoint and a Target. Out: OutFiles, one for every part and shard. Weights, averages and moments
take one way: by flat tensor where parts stay what they are and both sides are flat, else by name. File
``(q, i)`` is made in the likeness of the source's part ``q * P // Q``, shard ``i * N // M``: whose
remaining contents metaseq would load there, too (``checkpoint_utils.py``, ``get_paths_to_load``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from remap.dtypes import DType
from remap.expr import Expr, Take
from remap.formats.base import OutFile
from remap.formats.metaseq.checkpoint import Checkpoint
from remap.formats.metaseq.files.metadata import Metadata
from remap.formats.metaseq.files.names import FileName
from remap.formats.metaseq.files.shards import MODEL, Place
from remap.formats.metaseq.line import cast, shard_padding
from remap.formats.metaseq.optimizer import moments as mo
from remap.formats.metaseq.optimizer.agree import check_units
from remap.formats.metaseq.optimizer.slots import Optimizer
from remap.formats.metaseq.part import Part, Tree, derived, flattened
from remap.formats.metaseq.partition import Divider, Partition
from remap.formats.metaseq.writing.file import Content, NewState, facts, write_like
from remap.formats.metaseq.writing.units import reshaped, units_of
from remap.formats.torch.file import read
from remap.formats.torch.state import TorchFile
from remap.partitions.base import Copies
from remap.types import Entry

MERGED = "reshard"
"""Stem of the files that metaseq's own merge is documented to write."""


@dataclass(frozen=True)
class Target:
    """What is to be written.

    parts, shards  how many
    flat           False for tensors under their own names
    optimizer      False to leave the optimizer's state behind
    dtype          of weights and averages, None where they keep theirs; floats only
    moments        of the optimizer's moments, None where they keep theirs
    """

    parts: int
    shards: int
    flat: bool
    optimizer: bool = True
    dtype: DType | None = None
    moments: DType | None = None


class Regroup:
    """One resharding. ``tied`` says whether a projection of a single part is its embedding."""

    def __init__(
        self,
        source: Checkpoint,
        target: Target,
        partition: Partition,
        *,
        tied: bool = False,
        copies: Copies = "error",
    ) -> None:
        self.source = source
        self.target = target
        self.partition = partition
        self.tied = tied
        self.copies = copies
        self.divides = target.parts != len(source.parts)

    @cached_property
    def divider(self) -> Divider:
        """How tensors are divided over parts."""
        return self.source.divider(
            self.partition, target=self.target.parts, tied=self.tied, copies=self.copies
        )

    @cached_property
    def _wholes(self) -> dict[Place, dict[str, Expr]]:
        return {place: self.source.merged(self.divider, place) for place in self.source.parts[0].trees}

    @cached_property
    def _optimizers(self) -> Sequence[Optimizer] | None:
        """The state of every part; None where there is none, or none is wanted."""
        if not self.target.optimizer:
            return None
        have = self.source.optimizers()
        if have and (self.divides or self.target.shards != self.source.shards or not self.target.flat):
            mo.check_reshardable(self.source.parts, have, together=self.divides)
        return have

    @cached_property
    def _whole_moments(self) -> mo.Named:
        """Slot -> parameter -> moment of the whole model."""
        assert self._optimizers is not None
        return mo.whole_moments(self.source.parts, self._optimizers, self.divider)

    def files(self, name: str | None = None) -> Iterator[OutFile]:
        """Every file; ``name`` where there is one only and it is to be called so. Raises InputError."""
        for number in range(self.target.parts):
            yield from self._part(number, name)

    def _part(self, number: int, name: str | None) -> Iterator[OutFile]:
        like = self.source.parts[number * len(self.source.parts) // self.target.parts]
        trees, metadata = self._trees(number, like)
        state = self._state(number, like, metadata)
        file: TorchFile | None = None
        for shard in range(self.target.shards):
            path = self._likeness(like, shard)
            if file is None or file.path != path:
                file = read(path, at="model", state_dict=False)
            named = self._name(number, shard)
            content = Content(
                trees={p: self._cut(t, p, like, metadata, shard) for p, t in trees.items()},
                optimizer=state(shard),
                metadata=metadata,
                padding=self._padding(metadata, shard),
                facts=facts(
                    self.target.parts,
                    self.target.shards,
                    number,
                    shard,
                    flat=self.target.flat,
                    named=named.part is not None,
                ),
            )
            yield write_like(file, name or str(named), content)

    def _likeness(self, like: Part, shard: int) -> Path:
        """The file that a new one takes everything but tensors from."""
        first = like.shards[0]
        if self._optimizers is not None and self._optimizers[like.number].only and self.divides:
            return first.path  # alone has the slots that new states are made of
        return like.shards[shard * len(like.shards) // self.target.shards].path

    def _trees(self, number: int, like: Part) -> tuple[dict[Place, Tree], Metadata | None]:
        """Every state dict of a new part, and its metadata."""
        if self.target.flat and like.sharded and not self.divides:
            return dict(like.trees), like.metadata
        if self.divides:
            named = {
                p: self.divider.cut(whole, self.target.parts, number) for p, whole in self._wholes.items()
            }
        else:
            named = {p: like.named(p, self.copies) for p in like.trees}
        metadata = reshaped(like.metadata, named[MODEL]) if like.metadata else None
        if not self.target.flat:
            return {p: Tree(tuple(t), {}, t) for p, t in named.items()}, metadata
        metadata = metadata or units_of(named[MODEL], self.partition, self.tied, like.shards[0].path)
        trees = {}
        for place, tensors in named.items():
            order = like.trees[place].order if like.sharded else self._order(like, metadata, tensors)
            trees[place] = flattened(tensors, metadata, order)
        return trees, metadata

    def _order(self, like: Part, metadata: Metadata, tensors: Mapping[str, Expr]) -> list[str]:
        """Sharded tensors and buffers in the order of the modules, which is the optimizer's, too."""
        if any(list(f.shapes) != [k] for k, f in metadata.flats.items()):
            return _in_units(metadata, tensors)
        if self._optimizers is None or self._optimizers[like.number].unnamed:
            return list(tensors)
        number = mo.source_of(like, self._optimizers[like.number], metadata).local
        return sorted(tensors, key=lambda n: number.get(n, len(number)))

    def _cut(
        self, tree: Tree, place: Place, like: Part, metadata: Metadata | None, shard: int
    ) -> dict[str, Expr]:
        """What one shard has of a state dict."""
        source = shard * len(like.shards) // self.target.shards
        out: dict[str, Expr] = {}
        made: dict[int, Expr] = {}
        for key in tree.order:
            if key in tree.plain:
                expr = tree.plain[key]
                if self.target.flat and like.sharded and not self.divides:
                    expr = Take(_own(like, source, place, key))
            else:
                assert metadata is not None
                if metadata.flats[key].whole:
                    expr = self._whole_tensor(tree, place, key, like, source)
                else:
                    expr = tree.flat[key].shard(shard, self.target.shards)
            out[key] = made.setdefault(id(expr), derived(key, cast(expr, self.target.dtype)))
        return out

    def _whole_tensor(self, tree: Tree, place: Place, key: str, like: Part, source: int) -> Expr:
        """A tensor that every rank holds all of: that of the shard in whose likeness this one is made."""
        if like.sharded and not self.divides:
            return Take(like.shards[source].trees[place][key])
        return tree.flat[key].cut(0, tree.flat[key].numel)

    def _padding(self, metadata: Metadata | None, shard: int) -> dict[str, int]:
        if metadata is None or not self.target.flat:
            return {}
        return {
            k: 0 if f.whole else shard_padding(f.numel, self.target.shards, shard)
            for k, f in metadata.flats.items()
        }

    def _name(self, number: int, shard: int) -> FileName:
        """The name of a file: that of the source with other numbers, ``reshard`` for what was merged."""
        name = self.source.family.name
        parts = name.part is not None or self.target.parts > 1
        stem = name.stem if self.target.flat or not self.source.sharded else MERGED
        return FileName(stem, name.expert, number if parts else None, shard if self.target.flat else None)

    def _state(self, number: int, like: Part, metadata: Metadata | None) -> mo.States:
        """The optimizer's state of each shard of a new part."""
        if self._optimizers is None:
            return lambda shard: None
        optimizer = self._optimizers[like.number]
        target = self.target
        if not self.divides and (optimizer.only or optimizer.unnamed) and target.flat == like.sharded:
            return lambda shard: "kept" if shard == 0 else -1
        source = mo.source_of(like, optimizer, metadata)
        assert metadata is not None
        if target.flat and not optimizer.full and not self.divides:
            lines = optimizer.lines
        else:
            named = (
                {
                    slot: self.divider.cut(whole, target.parts, number)
                    for slot, whole in self._whole_moments.items()
                }
                if self.divides
                else mo.named_moments(like, optimizer)
            )
            if not target.flat:
                made: NewState = mo.full_state(source, named, metadata, target.moments)
                return lambda shard: made
            if optimizer.full:
                check_units(like.shards[0], optimizer.index, metadata)
            lines = mo.lines_of(named, metadata)
        return lambda shard: mo.flat_state(source, lines, metadata, shard, target.shards, target.moments)


def _own(part: Part, shard: int, place: Place, key: str) -> Entry:
    """A buffer of one shard; that of shard 0 where it has none."""
    held = part.shards[shard].trees[place]
    return held[key] if key in held else part.shards[0].trees[place][key]


def _in_units(metadata: Metadata, tensors: Mapping[str, Expr]) -> list[str]:
    """Flat tensors and buffers in the order of the modules: a buffer comes after the flat tensor of the
    innermost unit that it lies in."""
    inside = {*metadata.names, *metadata.aliases}
    after: dict[str, list[str]] = {k: [] for k in ("", *metadata.flats)}
    paths = {k.rpartition(".")[0]: k for k in metadata.flats}
    for name in tensors:
        if name not in inside:
            holders = [p for p in paths if not p or name.startswith(f"{p}.")]
            after[paths[max(holders, key=len)] if holders else ""].append(name)
    return [*after.pop(""), *(name for key, names in after.items() for name in (key, *names))]
