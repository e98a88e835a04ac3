"""Do these files belong together? Every shard against the others, before one of their bytes is used.

Files decide: lengths, metadata and step numbers. What the saved configuration says only warns, as
metaseq's own scripts leave it stale.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from math import ceil

from remap.errors import SHOWN, Damaged
from remap.formats.metaseq.files.metadata import Flat, Metadata
from remap.formats.metaseq.files.names import Family
from remap.formats.metaseq.files.shards import MODEL, Shard
from remap.formats.metaseq.line import shard_padding, shard_size

FLAT = "flat_param"
FOREIGN = "remove the file, or fetch the one that belongs here; files of two steps or runs can't be joined"


def is_sharded(shards: Sequence[Shard]) -> bool:
    """True where the tensors of a part are flat. Raises Damaged where nothing says what is in them."""
    model = shards[0].trees[MODEL]
    metadata = shards[0].metadata
    flat = [k for k in model if k.rpartition(".")[2].startswith(FLAT)]
    if metadata is None:
        if flat or len(shards) > 1:
            raise Damaged(
                "there is no shard_metadata, which alone says which parameters lie in "
                + (flat[0] if flat else "the shards"),
                where=shards[0].path,
                remedy="take the files that the trainer wrote; fairscale writes it since 0.3.7",
            )
        return False
    return any(_is_flat(metadata.flats[k], shards) for k in metadata.flats if k in model)


def _is_flat(flat: Flat, shards: Sequence[Shard]) -> bool:
    spec = shards[0].trees[MODEL][flat.key].spec
    shapes = list(flat.shapes.items())
    return len(spec.shape) == 1 and (len(shards) > 1 or shapes != [(flat.key, spec.shape)])


def check_shards(family: Family, shards: Sequence[Shard], part: int) -> None:
    """Raise Damaged, naming each file that is missing, or does not belong to the others."""
    _check_steps(shards)
    _check_metadata(shards)
    metadata = shards[0].metadata
    assert metadata is not None
    problems: list[str] = []
    missing = 0
    for flat in metadata.flats.values():
        if flat.whole:
            continue
        problems += list(_odd_lengths(flat, shards))
        if not problems:
            size = shards[0].trees[MODEL][flat.key].spec.shape[0]
            missing = max(missing, _world(flat.numel, size) - len(shards))
    if problems:
        raise Damaged(
            "shards do not fit together", where=shards[0].path.parent, problems=problems, remedy=FOREIGN
        )
    if missing > 0:
        names = [str(family.name.numbers(part, len(shards) + i)) for i in range(min(missing, SHOWN))]
        raise Damaged(
            f"{len(shards)} shards do not hold all of the model: at least {missing} more are missing",
            where=shards[0].path.parent,
            problems=names,
            remedy="fetch the missing files into the same folder",
        )
    problems = [p for flat in metadata.flats.values() for p in _misplaced(flat, shards)]
    if problems:
        raise Damaged(
            "shards are not where their contents say",
            where=shards[0].path.parent,
            problems=problems,
            remedy=FOREIGN,
        )


def _world(numel: int, size: int) -> int:
    """The fewest ranks whose shards of ``numel`` elements have ``size``."""
    return ceil(numel / size) if size else 1


def _check_steps(shards: Sequence[Shard]) -> None:
    steps = Counter(s.updates for s in shards)
    usual = steps.most_common(1)[0][0]
    odd = [f"{s.path.name}: step {s.updates}, the others have {usual}" for s in shards if s.updates != usual]
    if odd:
        raise Damaged(
            "shards are of different steps", where=shards[0].path.parent, problems=odd, remedy=FOREIGN
        )


def _check_metadata(shards: Sequence[Shard]) -> None:
    """All shards list the same flat tensors; the most common list is taken for the right one."""
    lists = [_content(s.metadata) for s in shards]
    usual = max(lists, key=lists.count) if len(shards) < 64 else lists[0]
    odd = [
        f"{s.path.name}: {_difference(mine, usual)}"
        for s, mine in zip(shards, lists, strict=True)
        if mine != usual
    ]
    if odd:
        raise Damaged(
            "shards say that they hold parts of different models",
            where=shards[0].path.parent,
            problems=odd,
            remedy=FOREIGN,
        )


Content = dict[str, tuple[tuple[str, tuple[int, ...]], ...]]


def _content(metadata: Metadata | None) -> Content | None:
    return None if metadata is None else {k: tuple(f.shapes.items()) for k, f in metadata.flats.items()}


def _difference(mine: Content | None, usual: Content | None) -> str:
    if mine is None or usual is None:
        return "it has no shard_metadata" if mine is None else "it has shard_metadata, the others have none"
    keys = [k for k in (*mine, *usual) if mine.get(k) != usual.get(k)]
    return f"{keys[0]} holds other parameters, or other shapes" if keys else "its units are in another order"


def _odd_lengths(flat: Flat, shards: Sequence[Shard]) -> Iterator[str]:
    """Shards whose piece of ``flat`` lacks, or has another length or type than the others'."""
    lacking = [s for s in shards if flat.key not in s.trees[MODEL]]
    for shard in lacking:
        yield f"{shard.path.name}: lacks {flat.key}"
    if lacking:
        return
    specs = [s.trees[MODEL][flat.key].spec for s in shards]
    usual = Counter(specs).most_common(1)[0][0]
    for shard, spec in zip(shards, specs, strict=True):
        if spec != usual:
            yield f"{shard.path.name}: {flat.key} is {spec}, the others have {usual}"
    size = usual.shape[0]
    expected = shard_size(flat.numel, len(shards))
    if set(specs) == {usual} and size < expected and size * len(shards) >= flat.numel:
        yield f"{flat.key} is {usual}, {len(shards)} shards of {flat.numel} elements have {expected} each"
    if set(specs) == {usual} and size > expected and _world(flat.numel, size) <= len(shards):
        yield (
            f"{flat.key} is {usual}, {len(shards)} shards of {flat.numel} elements have {expected} each: "
            "there are more files than were saved together, or metaseq cut them by their padded length"
        )


def _misplaced(flat: Flat, shards: Sequence[Shard]) -> Iterator[str]:
    """Shards whose own padding is not that of their place."""
    for rank, shard in enumerate(shards):
        assert shard.metadata is not None
        said = shard.metadata.flats[flat.key].padding
        right = 0 if flat.whole else shard_padding(flat.numel, len(shards), rank)
        if said != right:
            yield f"{shard.path.name}: {flat.key} has {said} elements of padding, shard {rank} has {right}"


def warnings(parts: int, shards: int, first: Shard) -> Iterator[str]:
    """What the saved configuration says against the files."""
    config = first.config
    if config.parts is not None and config.parts != parts:
        yield (
            f"the configuration in {first.path.name} says {config.parts} model parts, the files are {parts}; "
            "the files are believed"
        )
    elif config.world is not None and config.world != parts * shards:
        yield (
            f"the configuration in {first.path.name} says {config.world} processes, the files are "
            f"{parts} parts x {shards} shards; the files are believed"
        )
    if first.metadata is not None and any(f.whole for f in first.metadata.flats.values()):
        keys = [f.key for f in first.metadata.flats.values() if f.whole]
        yield f"{', '.join(keys[:3])}: every rank holds the whole of it (experts); that of shard 0 is taken"
