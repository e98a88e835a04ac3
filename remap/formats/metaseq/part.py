"""One model part: all its shards put together, by expressions; no tensor is read.

A Tree is one state dict (the model, a running average, one slot of the optimizer's) in the form in which
it can be cut again: flat tensors without padding, and the rest. Its tensors by name are ``named``; the way
back is ``flattened``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from remap.errors import Damaged
from remap.expr import Expr, Same, Take
from remap.formats.metaseq.check import check_shards, is_sharded
from remap.formats.metaseq.files.metadata import Metadata
from remap.formats.metaseq.files.names import Family
from remap.formats.metaseq.files.shards import MODEL, Place, Shard, read_shard
from remap.formats.metaseq.line import Line
from remap.formats.metaseq.optimizer.slots import Optimizer, read_optimizer
from remap.partitions.base import Copies, Merging
from remap.partitions.replicated import Replicated
from remap.types import Derived, Entry, find_ties


@dataclass(frozen=True)
class Tree:
    """One state dict of a part.

    order  its keys, flat ones among them
    flat   key of a flat tensor -> its elements, without padding
    plain  whatever is not sharded: buffers, compared with those of the other shards; all tensors, where the
           part is unflattened
    """

    order: tuple[str, ...]
    flat: Mapping[str, Line] = field(default_factory=dict)
    plain: Mapping[str, Expr] = field(default_factory=dict)

    def chosen(self, copies: Copies) -> Tree:
        """The same; what copies become is said."""
        if copies == "error":
            return self
        made = {
            id(e): Replicated().merge(e.parts, Merging(copies)) if isinstance(e, Same) else e
            for e in self.plain.values()
        }
        return replace(self, plain={k: made[id(e)] for k, e in self.plain.items()})


@dataclass(frozen=True)
class Part:
    """A model part.

    number     of the part; 0 where names have none
    shards     its files, in order
    sharded    True where its tensors are flat
    metadata   of shard 0
    trees      place -> state dict
    """

    number: int
    shards: tuple[Shard, ...]
    sharded: bool
    metadata: Metadata | None
    trees: Mapping[Place, Tree]

    def optimizer(self) -> Optimizer | None:
        """The optimizer's state, None where there is none. Raises InputError: it may be damaged where the
        weights are not."""
        return read_optimizer(self.shards, self.metadata, self.sharded)

    def named(self, place: Place = MODEL, copies: Copies = "error") -> dict[str, Expr]:
        """Every tensor of a state dict by its own name, ties under both; of what every shard has a copy of,
        what ``copies`` says."""
        tree = self.trees[place].chosen(copies)
        aliases = self.metadata.aliases if self.metadata and self.sharded else {}
        return named(tree, self.metadata, aliases)


def read_part(family: Family, number: int) -> Part:
    """Read every file of a part and check that they belong together. Raises InputError."""
    shards: list[Shard] = []
    for (part, _), path in family.files.items():
        if part == number:
            shards.append(read_shard(path, shards[0] if shards else None))
    sharded = is_sharded(shards)
    if len(shards) > 1 and not sharded:
        raise Damaged(
            f"{len(shards)} shards hold whole tensors, not pieces of flat ones",
            where=shards[0].path,
            remedy="point at one file that is complete",
        )
    if sharded:
        check_shards(family, shards, number)
    metadata = shards[0].metadata
    trees = {place: _tree(place, shards, metadata if sharded else None) for place in shards[0].trees}
    return Part(number, tuple(shards), sharded, metadata, trees)


def _tree(place: Place, shards: Sequence[Shard], metadata: Metadata | None) -> Tree:
    first = shards[0].trees[place]
    flats = metadata.flats if metadata else {}
    flat: dict[str, Line] = {}
    lacking = [s.path.name for s in shards if place not in s.trees]
    if lacking:
        raise Damaged(
            f"shards have no {'.'.join(place)}, the first has", where=shards[0].path, problems=lacking
        )
    odd = [f"{s.path.name}: {k}" for s in shards for k in s.trees[place] if k not in first]
    if odd:
        raise Damaged(
            "shards hold other tensors than the first",
            where=f"{shards[0].path}: {'.'.join(place)}",
            problems=odd,
            remedy="fetch the files of one step again: nothing says what these are pieces of",
        )
    for key in first:
        if key not in flats:
            continue
        pieces = [Take(_entry(s, place, key)) for s in shards]
        if (
            len({p.spec for p in pieces}) > 1
            or pieces[0].spec.shape != shards[0].trees[MODEL][key].spec.shape
        ):
            raise Damaged(
                "its shards are not cut as the model's are",
                where=f"{shards[0].path}: {'.'.join(place)}: {key}",
            )
        if flats[key].whole:
            flat[key] = Line((pieces[0],))
            continue
        flat[key] = Line.of_shards(pieces, flats[key].numel)
    takes = {k: _copies(k, shards, place) for k in first if k not in flat}
    ties = find_ties(first.values())
    return Tree(tuple(first), flat, {k: takes.get(ties.get(k, k), t) for k, t in takes.items()})


def _copies(key: str, shards: Sequence[Shard], place: Place) -> Expr:
    """A tensor of which every shard has a copy."""
    held = {s.path.name: Take(s.trees[place][key]) for s in shards if key in s.trees[place]}
    if len({t.spec for t in held.values()}) > 1:
        raise Damaged(
            f"shards have {key} in different shapes or types",
            where=shards[0].path.parent,
            problems=[f"{name}: {take.spec}" for name, take in held.items()],
        )
    return Replicated().merge(list(held.values()), Merging())


def _entry(shard: Shard, place: Place, key: str) -> Entry:
    entry = shard.trees[place].get(key)
    if entry is None:
        raise Damaged("the tensor is not in this shard", where=f"{shard.path}: {'.'.join(place)}: {key}")
    return entry


def named(tree: Tree, metadata: Metadata | None, aliases: Mapping[str, str]) -> dict[str, Expr]:
    """The tensors of a state dict by name, as a model holds them; a tie is one tensor under two names."""
    out: dict[str, Expr] = {}
    for key in tree.order:
        if key in tree.plain:
            out[key] = tree.plain[key]
            continue
        assert metadata is not None
        for name, expr in tree.flat[key].tensors(metadata.flats[key].shapes).items():
            out[name] = derived(name, expr)
    for alias, source in aliases.items():
        if source in out:
            out.setdefault(alias, out[source])
    return out


def derived(name: str, expr: Expr) -> Expr:
    """``expr`` as a tensor of its own, so that ties to it are seen."""
    return expr if isinstance(expr, Take) else Take(Entry(name, expr.spec, Derived(expr)))


def flattened(tensors: Mapping[str, Expr], metadata: Metadata, order: Sequence[str]) -> Tree:
    """The way back from ``named``: every flat tensor of ``metadata`` from the tensors that lie in it."""
    inside = set(metadata.names)
    flat = {
        key: Line.of_tensors(tensors[n] for n in f.shapes)
        for key, f in metadata.flats.items()
        if all(n in tensors for n in f.shapes)
    }
    plain = {k: e for k, e in tensors.items() if k not in inside and k not in metadata.aliases}
    return Tree(tuple([k for k in order if k in flat or k in plain]), flat, plain)
