"""The optimizer's state of a new file: moments cut like the weights, everything else carried along.

In: the state of the parts that were read. Out: for each shard of a new part a NewState. By flat tensor
where weights are flat, by parameter where they are not, as fairscale's gather has it (``param_id_map``).
Source: fairscale ``fsdp_optim_utils.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from remap.dtypes import DType
from remap.errors import InputError
from remap.expr import Expr
from remap.formats.metaseq.files.metadata import Metadata
from remap.formats.metaseq.files.shards import OPTIMIZER, State
from remap.formats.metaseq.line import Line, cast
from remap.formats.metaseq.optimizer.agree import WITHOUT, check_agree
from remap.formats.metaseq.optimizer.slots import Optimizer
from remap.formats.metaseq.part import Part
from remap.formats.metaseq.partition import Divider
from remap.formats.metaseq.writing.file import NewState, Slot

Named = Mapping[str, Mapping[str, Expr]]
"""Slot -> parameter -> tensor."""

States = Callable[[int], "NewState | str | int | None"]
"""Shard -> its state: a new one, "kept" for that of the likeness, -1 where shard 0 has it, None for none."""


@dataclass(frozen=True)
class Source:
    """The state of the part that a new one is made in the likeness of.

    optimizer  what was read
    state      of its shard 0
    local      flat key -> index of a flat tensor; a key that is not in it is frozen
    """

    optimizer: Optimizer
    state: State
    local: Mapping[str, int]

    def like(self, key: str, name: str) -> int:
        """The index whose slots are those of parameter ``name``, which lies in flat tensor ``key``."""
        return self.optimizer.index[name] if self.optimizer.full else self.local[key]


def source_of(part: Part, optimizer: Optimizer, metadata: Metadata | None) -> Source:
    """The state of ``part``; ``metadata`` says which parameters lie in which flat tensor.

    Raises InputError where nothing says which index is which parameter.
    """
    state = part.shards[0].optimizer
    assert isinstance(state, State)
    if optimizer.unnamed or metadata is None:
        raise InputError(
            "the optimizer's state counts parameters, and nothing says which is which",
            where=f"{part.shards[0].path}: {OPTIMIZER}",
            remedy=WITHOUT,
        )
    if not optimizer.full:
        return Source(optimizer, state, optimizer.index)
    local: dict[str, int] = {}
    for number, (key, flat) in enumerate(metadata.flats.items()):
        ids = [optimizer.index[n] for n in flat.shapes]
        units = [state.id_map.get(i) if state.id_map is not None else number for i in ids]
        if units and units[0] is not None:
            local[key] = units[0]
    return Source(optimizer, state, local)


def named_moments(part: Part, optimizer: Optimizer) -> Named:
    """Every moment of a part by the name of its parameter."""
    if optimizer.full:
        return optimizer.tensors
    assert part.metadata is not None
    return {
        slot: {
            name: expr
            for key, line in lines.items()
            for name, expr in line.tensors(part.metadata.flats[key].shapes).items()
        }
        for slot, lines in optimizer.lines.items()
    }


def whole_moments(parts: Sequence[Part], optimizers: Sequence[Optimizer], divider: Divider) -> Named:
    """Every moment of the whole model."""
    held = [named_moments(p, o) for p, o in zip(parts, optimizers, strict=True)]
    return {slot: divider.merge([h[slot] for h in held]) for slot in held[0]}


def check_reshardable(parts: Sequence[Part], optimizers: Sequence[Optimizer], *, together: bool) -> None:
    """Raise InputError where the shards of a part differ in what can't be cut anew; those of all parts, where
    these are put ``together``."""
    held = [[s for p in parts for s in p.shards]] if together else [p.shards for p in parts]
    for shards, optimizer in zip(held, optimizers, strict=False):
        check_agree(shards, optimizer.odd)


def flat_state(
    source: Source,
    lines: Mapping[str, Mapping[str, Line]],
    metadata: Metadata,
    shard: int,
    shards: int,
    dtype: DType | None,
) -> NewState:
    """The state of one shard: ``lines`` are moments by slot and flat key."""
    slots: list[Slot] = []
    for key, index in source.local.items():
        flat = metadata.flats[key]
        like = source.like(key, next(iter(flat.shapes)))
        if like in source.state.slots:
            tensors = {
                slot: cast(by[key].pieces[0], dtype) if flat.whole else by[key].shard(shard, shards, dtype)
                for slot, by in lines.items()
                if key in by
            }
            slots.append(Slot(index, like, tensors))
    if source.optimizer.full:
        return NewState(slots, _local_groups(source, metadata))
    known = set(source.local.values())
    slots += [Slot(i, i, {}) for i in source.state.slots if i not in known]  # the criterion's
    return NewState(sorted(slots, key=lambda s: s.index))


def full_state(source: Source, moments: Named, metadata: Metadata, dtype: DType | None) -> NewState:
    """The state by parameter: ``moments`` by slot and name."""
    slots: list[Slot] = []
    id_map: dict[int, int | None] = {}
    number = 0
    for key, flat in metadata.flats.items():
        for name in flat.shapes:
            id_map[number] = source.local.get(key)
            if key in source.local:
                like = source.like(key, name)
                if like in source.state.slots:
                    tensors = {s: cast(by[name], dtype) for s, by in moments.items() if name in by}
                    slots.append(Slot(number, like, tensors))
            number += 1
    groups = (
        None
        if source.optimizer.full
        else [
            [i for i, unit in id_map.items() if unit is not None and unit in g] for g in source.state.groups
        ]
    )
    return NewState(slots, groups, id_map)


def _local_groups(source: Source, metadata: Metadata) -> list[list[int]]:
    """Groups of parameters as groups of flat tensors."""
    unit = {
        source.optimizer.index[n]: source.local[key]
        for key, flat in metadata.flats.items()
        if key in source.local
        for n in flat.shapes
    }
    return [sorted({unit[i] for i in group if i in unit}) for group in source.state.groups]


def lines_of(moments: Named, metadata: Metadata) -> dict[str, dict[str, Line]]:
    """Moments by name as flat tensors."""
    return {
        slot: {
            key: Line.of_tensors(by[n] for n in flat.shapes)
            for key, flat in metadata.flats.items()
            if all(n in by for n in flat.shapes)
        }
        for slot, by in moments.items()
    }
