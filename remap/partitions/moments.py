"""The optimizer's state of tensor-parallel ranks, merged as their weights are.

In: a state under the names of all ranks (``types.rank_key``), and the class of every key. Out: the state of
the model. A moment is divided like its weight, but for addends: the gradient of a sum is that of each addend,
so that ranks hold copies of one moment.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from remap.errors import InputError, UsageError
from remap.expr import Take
from remap.partitions.addends import Addends
from remap.partitions.base import Merging, Partition
from remap.partitions.replicated import Replicated
from remap.types import Derived, Entry, OptimizerState, rank_key

PARAMS = "params"


def merge_state(
    state: OptimizerState, classes: Mapping[str, Partition], ranks: int, how: Merging
) -> OptimizerState:
    """The state of the model. Raises InputError naming what can't be put together."""
    tensors: dict[str, dict[str, Entry]] = {}
    problems: list[str] = []
    for key, cls in classes.items():
        held = [state.tensors.get(rank_key(key, r), {}) for r in range(ranks)]
        if not any(held):
            continue
        if len({tuple(h) for h in held}) > 1:
            problems.append(f"{key}: ranks keep different things of it")
            continue
        try:
            tensors[key] = {s: _merged(f"{key}.{s}", [h[s] for h in held], cls, how) for s in held[0]}
        except UsageError as e:
            problems.append(f"{key}: {e.what}")
    if problems:
        raise InputError(
            "the optimizer's state of these weights can't be put together",
            problems=problems,
            remedy="leave the optimizer behind with --no-optimizer",
        )
    first = {rank_key(key, 0): key for key in classes}
    groups = [{**g, PARAMS: [first[k] for k in _listed(g) if k in first]} for g in state.groups]
    values = {first[k]: v for k, v in state.values.items() if k in first}
    return OptimizerState(state.name, tensors, values, groups, state.rest)


def merge_one(state: OptimizerState, classes: Mapping[str, Partition], how: Merging) -> OptimizerState:
    """The state of a model of one rank, of whose weights ``classes`` change some."""
    tensors = {
        key: {s: _merged(f"{key}.{s}", [e], classes[key], how) for s, e in slots.items()}
        if key in classes
        else slots
        for key, slots in state.tensors.items()
    }
    return replace(state, tensors=tensors)


def _listed(group: Mapping[str, object]) -> Sequence[str]:
    params = group[PARAMS]
    return params if isinstance(params, list) else ()


def _merged(name: str, parts: Sequence[Entry], cls: Partition, how: Merging) -> Entry:
    if not parts[0].spec.shape:  # a step, the same on all ranks
        return Entry(name, parts[0].spec, parts[0].location)
    divided = Replicated() if isinstance(cls, Addends) else cls
    expr = divided.merge([Take(p) for p in parts], how)
    return Entry(name, expr.spec, expr.entry.location if isinstance(expr, Take) else Derived(expr))
