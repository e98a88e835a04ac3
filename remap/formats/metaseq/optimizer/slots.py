"""The optimizer's state: which of its tensors are moments, and of which parameter.

In: the shards of a part. Out: an Optimizer. Every rank saves the state of its own shards: for each index a
step, and tensors as long as the shard (``exp_avg``, ``exp_avg_sq``, ...), with the same padding. Index
``i`` is the ``i``-th sharded tensor in the order of the modules; frozen units have no index, units that
got no gradient an index without state. An unflattened state (fairscale's gather) counts parameters
instead, and says so by its ``param_id_map``; -1 on a rank means that shard 0 has the state of all.

Tensors that are not one element for an element (0-dim steps, maps and maxima of 8-bit optimizers) are
carried along. They can't be resharded: where shards differ in them, ``agree`` refuses. Source: metaseq
``trainer.py``, ``optim/``; fairscale ``fsdp_optim_utils.py``; bitsandbytes ``optim/optimizer.py``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from remap.errors import Damaged, InputError
from remap.expr import Expr, Take
from remap.formats.metaseq.files.metadata import Metadata
from remap.formats.metaseq.files.shards import MODEL, OPTIMIZER, Shard, State
from remap.formats.metaseq.line import Line
from remap.formats.metaseq.optimizer.agree import WITHOUT
from remap.types import Entry

MOMENTS = ("exp_avg", "exp_avg_sq", "max_exp_avg_sq", "momentum_buffer", "state1", "state2")
"""Slots that have one element for an element of the weight, by definition."""

NEVER_MOMENTS = ("step", "qmap", "absmax", "unorm_vec")
"""Beginnings of slots that have not, even where the length would fit (a shard of one element)."""


@dataclass(frozen=True)
class Optimizer:
    """The optimizer's state of a part.

    full      False: by flat tensor, in every shard; True: by parameter, in shard 0
    only      True where just shard 0 has it, and the others a placeholder
    index     flat key, or name of the parameter where ``full`` -> index
    lines     slot -> flat key -> elements; {} where ``full``
    tensors   slot -> parameter -> tensor; {} unless ``full``
    odd       (index, slot) of tensors that are no moments
    unnamed   True where ``full`` and nothing says which index is which parameter
    """

    full: bool
    only: bool
    index: Mapping[str, int]
    lines: Mapping[str, Mapping[str, Line]]
    tensors: Mapping[str, Mapping[str, Expr]]
    odd: tuple[tuple[int, str], ...] = ()
    unnamed: bool = False


def read_optimizer(shards: Sequence[Shard], metadata: Metadata | None, sharded: bool) -> Optimizer | None:
    """What the shards of a part hold of the optimizer, None where they hold nothing. Raises InputError."""
    if all(s.optimizer is None for s in shards):
        return None
    lacking = [f"{s.path.name}: none" for s in shards if s.optimizer is None]
    if lacking or not isinstance(shards[0].optimizer, State):
        raise Damaged(
            f"not every shard has {OPTIMIZER}",
            where=shards[0].path.parent,
            problems=lacking or [f"{shards[0].path.name}: a placeholder, and shard 0 should have the state"],
            remedy=f"fetch the files again, or {WITHOUT}",
        )
    first = shards[0].optimizer
    only = any(not isinstance(s.optimizer, State) for s in shards)
    if not sharded or only or first.id_map is not None:
        return _full(first, only, shards[0], metadata)
    assert metadata is not None
    return _flat([s.optimizer for s in shards if isinstance(s.optimizer, State)], shards, metadata)


def _full(state: State, only: bool, first: Shard, metadata: Metadata | None) -> Optimizer:
    names = metadata.names if metadata else ()
    odd = tuple(
        (i, slot)
        for i, slots in state.slots.items()
        for slot, e in slots.items()
        if not e.spec.shape or slot.startswith(NEVER_MOMENTS)
    )
    indices = state.indices if state.id_map is None else tuple(sorted(state.id_map))
    if len(indices) != len(names):
        _refuse_flat(state, first, only)
        return Optimizer(True, only, {}, {}, {}, odd, unnamed=True)
    shapes = {n: s for f in (metadata.flats.values() if metadata else ()) for n, s in f.shapes.items()}
    index = dict(zip(names, indices, strict=True))
    tensors: dict[str, dict[str, Expr]] = {}
    problems: list[str] = []
    for name, i in index.items():
        for slot, entry in state.slots.get(i, {}).items():
            if (i, slot) in odd:
                continue
            if entry.spec.shape != shapes[name]:
                problems.append(f"{slot} {i} is {entry.spec}, {name} has shape {list(shapes[name])}")
            tensors.setdefault(slot, {})[name] = Take(entry)
    if problems:
        _fail("the optimizer's state does not fit the parameters", first, problems)
    return Optimizer(True, only, index, {}, tensors, odd)


def _refuse_flat(state: State, first: Shard, only: bool) -> None:
    """A state that is flat beside weights that are not: what metaseq's reshard_fsdp.py leaves."""
    lengths = {e.spec.shape for slots in state.slots.values() for e in slots.values() if e.spec.shape}
    model = {e.spec.shape for e in first.trees[MODEL].values()}
    if lengths and not only and all(len(s) == 1 for s in lengths) and not lengths <= model:
        _fail(
            "the weights are unflattened, the optimizer's state is flat: which element belongs to which "
            "parameter nothing says",
            first,
            [f"{len(state.indices)} flat tensors of moments"],
        )


def _flat(states: Sequence[State], shards: Sequence[Shard], metadata: Metadata) -> Optimizer:
    keys = [k for k in shards[0].trees[MODEL] if k in metadata.flats]
    sizes = {k: shards[0].trees[MODEL][k].spec.shape[0] for k in keys}
    index = _match(keys, sizes, states[0], shards[0])
    _check_entries(states, shards)
    lines: dict[str, dict[str, Line]] = {}
    odd: list[tuple[int, str]] = []
    problems: list[str] = []
    known = {i: k for k, i in index.items()}
    for i, slots in states[0].slots.items():
        for slot in slots:
            entries = [s.slots[i][slot] for s in states]
            key = known.get(i)
            if key is None or not _per_element(slot, entries, sizes[key]):
                odd.append((i, slot))
                if key is not None and slot in MOMENTS and entries[0].spec.shape:
                    problems += [
                        f"{s.path.name}: {slot} {i} is {e.spec}, {key} has {sizes[key]} elements a shard"
                        for s, e in zip(shards, entries, strict=True)
                        if e.spec.shape != (sizes[key],)
                    ]
                continue
            flat = metadata.flats[key]
            takes = [Take(e) for e in entries]
            lines.setdefault(slot, {})[key] = (
                Line((takes[0],)) if flat.whole else Line.of_shards(takes, flat.numel)
            )
    if problems:
        _fail("the optimizer's state is not cut as the weights are", shards[0], problems)
    return Optimizer(False, False, index, lines, {}, tuple(odd))


def _per_element(slot: str, entries: Sequence[Entry], size: int) -> bool:
    return not slot.startswith(NEVER_MOMENTS) and all(e.spec.shape == (size,) for e in entries)


def _check_entries(states: Sequence[State], shards: Sequence[Shard]) -> None:
    """Every shard has the same slots at the same indices."""
    usual = {(i, slot) for s in states for i, slots in s.slots.items() for slot in slots}
    problems = []
    for state, shard in zip(states, shards, strict=True):
        mine = {(i, slot) for i, slots in state.slots.items() for slot in slots}
        problems += [f"{shard.path.name}: lacks {slot} of {i}" for i, slot in sorted(usual - mine)]
    if problems:
        _fail("shards hold the optimizer's state of different parameters", shards[0], problems)


def _match(keys: Sequence[str], sizes: Mapping[str, int], state: State, first: Shard) -> dict[str, int]:
    """Flat key -> index. Raises InputError where several assignments fit."""
    indices = state.indices
    if len(indices) >= len(keys):  # what comes after belongs to the criterion
        return dict(zip(keys, indices, strict=False))
    lengths = [_length(state, i) for i in indices]
    found = list(_assignments(lengths, [sizes[k] for k in keys], 0, 0))
    if len(found) != 1:
        _fail(
            f"the optimizer has {len(indices)} of {len(keys)} flat tensors (frozen units have no index), and "
            f"which these are, their lengths do not tell",
            first,
            [],
        )
    return {keys[place]: i for place, i in zip(found[0], indices, strict=True)}


def _length(state: State, index: int) -> int | None:
    """Length of a moment at ``index``, None where there is none."""
    slots = state.slots.get(index, {})
    return next((prod(e.spec.shape) for s, e in slots.items() if s in MOMENTS and e.spec.shape), None)


def _assignments(
    lengths: Sequence[int | None], sizes: Sequence[int], at: int, start: int
) -> Iterator[tuple[int, ...]]:
    """Every way to give each length a size of its own, in order; two are enough to know."""
    if at == len(lengths):
        yield ()
        return
    given = 0
    for place in range(start, len(sizes) - (len(lengths) - at) + 1):
        if lengths[at] is None or lengths[at] == sizes[place]:
            for rest in _assignments(lengths, sizes, at + 1, place + 1):
                yield (place, *rest)
                given += 1
                if given > 1:
                    return


def _fail(what: str, shard: Shard, problems: Sequence[str]) -> None:
    raise InputError(what, where=f"{shard.path}: {OPTIMIZER}", problems=problems, remedy=WITHOUT)
