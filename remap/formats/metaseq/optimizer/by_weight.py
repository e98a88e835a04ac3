"""The optimizer's state of a whole checkpoint, weight by weight: what other formats can hold of it.

In: a Checkpoint. Out: an OptimizerState, its moments joined over shards and parts like their weights. The
way back is ``singleton.optimizer_of``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from remap.errors import InputError
from remap.expr import Expr, Take
from remap.formats.metaseq.checkpoint import Checkpoint
from remap.formats.metaseq.files.shards import OPTIMIZER
from remap.formats.metaseq.optimizer import moments as mo
from remap.formats.metaseq.optimizer.agree import WITHOUT
from remap.formats.metaseq.optimizer.slots import Optimizer
from remap.formats.metaseq.part import derived
from remap.formats.metaseq.partition import Divider
from remap.formats.torch.file import read
from remap.pickles.graph import Opaque
from remap.types import Entry, OptimizerState

OWN = ("state", "param_groups", "param_id_map", "uncollected_local_ids")
"""What is said in another way of a state by weight."""


def optimizer_by_weight(checkpoint: Checkpoint, divider: Divider | None = None) -> OptimizerState:
    """The state of ``checkpoint``, which has one, its parts merged by ``divider``. Raises InputError where it
    is damaged, or can't be told apart by weight."""
    first = checkpoint.parts[0]
    optimizers = checkpoint.optimizers()
    assert optimizers is not None
    mo.check_reshardable(checkpoint.parts, optimizers, together=True)
    source = mo.source_of(first, optimizers[0], first.metadata)
    assert first.metadata is not None
    index = {
        name: source.like(key, name)
        for key, flat in first.metadata.flats.items()
        if key in source.local
        for name in flat.shapes
    }
    held: Mapping[str, object] = read(first.shards[0].path, at="model", state_dict=False).plain(OPTIMIZER)  # type: ignore[assignment]
    slots = _by_index(held["state"])
    whole = mo.whole_moments(checkpoint.parts, optimizers, divider or checkpoint.divider())
    tensors = {name: _tensors(name, i, whole, source, optimizers[0]) for name, i in index.items()}
    values = {
        name: {s: v for s, v in slots.get(i, {}).items() if not isinstance(v, Opaque)}
        for name, i in index.items()
    }
    rest = {k: v for k, v in held.items() if k not in OWN}
    odd = [f"{OPTIMIZER}.{k}" for k, v in rest.items() if isinstance(v, Opaque)]
    odd += [f"{s} of {i}" for i, s in optimizers[0].odd if source.state.slots[i][s].spec.numel > 1]
    if odd:
        raise InputError(
            "the optimizer keeps what is not one element for an element: it has no meaning weight by weight",
            where=first.shards[0].path,
            problems=odd,
            remedy=WITHOUT,
        )
    return OptimizerState(
        OPTIMIZER,
        {n: t for n, t in tensors.items() if t},
        {n: v for n, v in values.items() if v},
        list(_groups(held.get("param_groups"), index)),
        rest,
    )


def _by_index(state: object) -> dict[int, dict[str, object]]:
    return {i: s for i, s in state.items() if isinstance(s, dict)} if isinstance(state, dict) else {}


def _tensors(
    name: str, index: int, whole: Mapping[str, Mapping[str, Expr]], source: mo.Source, optimizer: Optimizer
) -> dict[str, Entry]:
    """The tensors of one weight's state, slots in their order."""
    found: dict[str, Entry] = {}
    for slot, entry in source.state.slots.get(index, {}).items():
        if name in whole.get(slot, {}):
            made = derived(f"{name}.{slot}", whole[slot][name])
            assert isinstance(made, Take)
            found[slot] = made.entry
        elif (index, slot) in optimizer.odd:
            found[slot] = entry
    return found


def _groups(groups: object, index: Mapping[str, int]) -> Iterator[dict[str, object]]:
    for group in groups if isinstance(groups, list) else ():
        numbers: Sequence[int] = group["params"]
        yield {**group, "params": [n for n, i in index.items() if i in numbers]}
