"""The weights of one model-parallel rank, put together from the shards of its data-parallel ranks.

In: shards in order, and ``param_shapes``: a dict of names and shapes for every group (ZeRO-3: sub-group).
Out: fp32 weights, moments and steps by name. The order of ``param_shapes`` is that of the data, also where
gradients were reduced round robin. Source: DeepSpeed ``runtime/engine.py`` (``_get_zero_param_shapes``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from pathlib import Path

from remap.errors import Damaged, InputError
from remap.formats.deepspeed.zero.cut import Flat, Shapes, piece_size
from remap.formats.deepspeed.zero.shard import Group, Shard
from remap.types import Entry

WITHOUT = "without --weights zero the weights are taken as the model was trained with"
NO_OPTIMIZER = "leave the optimizer behind with --no-optimizer"


@dataclass
class Weights:
    """By name of a weight.

    fp32    the weights
    slots   slot -> moment of the weight's shape, or a step
    values  slot -> plain value
    group   number of its parameter group
    odd     what the optimizer keeps that is not one element for an element
    """

    fp32: dict[str, Entry] = field(default_factory=dict)
    slots: dict[str, dict[str, Entry]] = field(default_factory=dict)
    values: dict[str, Mapping[str, object]] = field(default_factory=dict)
    group: dict[str, int] = field(default_factory=dict)
    odd: list[str] = field(default_factory=list)


def read_weights(shards: Sequence[Shard], shapes: Sequence[Shapes], where: Path) -> Weights:
    """Put the weights of one rank together. ``where`` is the file that ``shapes`` are from.

    Raises Damaged where shards and shapes do not belong together.
    """
    first = shards[0]
    if len(shapes) != len(first.groups):
        raise Damaged(
            f"param_shapes has {len(shapes)} groups, {first.file.path.name} has {len(first.groups)}",
            where=where,
            remedy=f"the ZeRO files are of another run, or step; {WITHOUT}",
        )
    owner = _owners(first)
    found = Weights()
    for number, names in enumerate(shapes):
        groups = [s.groups[number] for s in shards]
        padding = first.alignment[number] if number < len(first.alignment) else ()
        starts = dict(_starts(names, first.stage, len(shards), padding))
        _check_size(groups, starts[None], first, where)
        _add(found, groups, names, starts, first.stage)
        found.group.update(dict.fromkeys(names, owner.get(number, number)))
    return found


def _owners(shard: Shard) -> dict[int, int]:
    """Number of a flat tensor -> number of its parameter group: ZeRO-3 has several in one."""
    if shard.stage < 3:
        return {g: g for g in range(len(shard.groups))}
    listed = [(g, s.get("params")) for g, s in enumerate(shard.settings)]
    return {n: g for g, params in listed if isinstance(params, list) for n in params if type(n) is int}


def _starts(
    names: Shapes, stage: int, ranks: int, padding: Sequence[int]
) -> Iterator[tuple[str | None, int]]:
    """Where each weight begins; at None, where the last one ends."""
    at = 0
    for i, (name, shape) in enumerate(names.items()):
        yield name, at
        numel = prod(shape)
        at += piece_size(numel, ranks) if stage == 3 else numel + (padding[i] if i < len(padding) else 0)
    yield None, at


def _check_size(groups: Sequence[Group], wanted: int, first: Shard, where: Path) -> None:
    """The flat tensors are as long as the weights in them, but for padding at the end: to a multiple of
    twice the ranks (``runtime/zero/stage_1_and_2.py``, ``nccl_start_alignment_factor``)."""
    sizes = [g.weights.spec.numel for g in groups]
    held, ranks = (min(sizes), 1) if first.stage == 3 else (sum(sizes), len(sizes))
    if not wanted <= held < wanted + 2 * ranks:
        raise Damaged(
            f"the weights of a group have {wanted} elements, the ZeRO files hold {held}",
            where=where,
            problems=[f"{g.weights.location.file.name}: {n}" for g, n in zip(groups, sizes, strict=True)],  # type: ignore[union-attr]
            remedy=f"the ZeRO files are of another run, or step; {WITHOUT}",
        )


def _add(
    found: Weights, groups: Sequence[Group], names: Shapes, starts: Mapping[str | None, int], stage: int
) -> None:
    flat = {"": Flat([g.weights for g in groups])}
    scalars: dict[str, Entry] = {}
    for slot, entry in groups[0].slots.items():
        pieces = [g.slots[slot] for g in groups if slot in g.slots]
        if entry.spec.shape == ():
            scalars[slot] = entry
        elif len(pieces) == len(groups) and all(map(_is_like, pieces, groups)):
            flat[slot] = Flat(pieces)
        else:
            found.odd.append(f"{entry.location.file.name}: {slot} {entry.spec}")  # type: ignore[union-attr]
    for name, shape in names.items():
        at = starts[name]
        cut = {s: (f.apart if stage == 3 else f.joined)(name, shape, at) for s, f in flat.items()}
        found.fp32[name] = cut.pop("")
        found.slots[name] = cut | {s: _named(name, e) for s, e in scalars.items()}
        found.values[name] = groups[0].values


def _is_like(moment: Entry, group: Group) -> bool:
    """True for one element for an element, with padding at the end or without."""
    return len(moment.spec.shape) == 1 and moment.spec.numel >= group.weights.spec.numel


def _named(key: str, entry: Entry) -> Entry:
    return Entry(key, entry.spec, entry.location)


def check_even(weights: Weights, where: Path) -> None:
    """Raise InputError where the optimizer keeps what can't be told apart weight by weight."""
    if weights.odd:
        raise InputError(
            "the optimizer keeps what is not one element for an element: it has no meaning weight by weight",
            where=where,
            problems=weights.odd,
            remedy=NO_OPTIMIZER,
        )
