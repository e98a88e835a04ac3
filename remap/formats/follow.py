"""The optimizer's state follows its weights: through renames, joins, cuts and reorderings.

In: the state as the source has it, and the outputs. Out: the same state by the outputs' keys, moments as
expressions. A moment has an element for each of its weight's, so that whatever only moves elements does the
same to it; a cast of the weight is none of its own, nor is a number that is added to it, and elements that a
weight gets new begin at zero. What was scaled, summed or dropped has no state any more, and that is said.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from remap.dtypes import BY_NAME
from remap.errors import UsageError
from remap.expr import (
    Affine,
    Cast,
    Concat,
    Constant,
    Expr,
    Normal,
    Pad,
    Permute,
    Reshape,
    Same,
    Slice,
    Sum,
    Take,
    takes,
)
from remap.expr.ties import tied_outputs
from remap.types import OptimizerState, TensorSpec

PARAMS, STEP = "params", "step"


@dataclass(frozen=True)
class Followed:
    """``OptimizerState`` by the keys of an output."""

    name: str
    tensors: Mapping[str, Mapping[str, Expr]]
    values: Mapping[str, Mapping[str, object]]
    groups: Sequence[Mapping[str, object]]
    rest: Mapping[str, object]

    @property
    def keys(self) -> tuple[str, ...]:
        """The weights that have a state, or are in a group."""
        grouped = (str(k) for g in self.groups for k in g[PARAMS])  # type: ignore[attr-defined]
        return tuple(dict.fromkeys([*self.tensors, *self.values, *grouped]))

    def slots(self, key: str) -> dict[str, object]:
        """The state of a weight as torch's Adam keeps it: every weight has a step, a tensor; that of its
        group where only groups have one (FusedAdam)."""
        group = next((g for g in self.groups if key in g[PARAMS]), {})  # type: ignore[operator]
        step = {STEP: group[STEP]} if STEP in group and key in self.tensors else {}
        found = {**step, **self.values.get(key, {}), **self.tensors.get(key, {})}
        return {k: _scalar(v) if k == STEP and type(v) in (int, float) else v for k, v in found.items()}


def follow(state: OptimizerState, outputs: Mapping[str, Expr]) -> Followed:
    """``state`` by the keys of ``outputs``. Raises UsageError, naming each whose state can't."""
    group = {str(k): i for i, g in enumerate(state.groups) for k in g[PARAMS]}  # type: ignore[attr-defined]
    known = {*state.tensors, *state.values, *group}
    tensors: dict[str, dict[str, Expr]] = {}
    values: dict[str, dict[str, object]] = {}
    groups: list[list[str]] = [[] for _ in state.groups]
    ties = tied_outputs(outputs)
    stated: set[str] = set()
    used: set[str] = set()
    stuck: list[str] = []
    for key, expr in outputs.items():
        used.update(t.entry.key for t in takes(expr))
        sources = list(dict.fromkeys(_sources(expr, known)))
        if known.isdisjoint(sources) or ties.get(key) in stated:
            continue
        stated.add(key)
        numbers = {group.get(s) for s in sources}
        held = [dict(state.values.get(s, {})) for s in sources]
        slots = [frozenset(state.tensors.get(s, {})) for s in sources]
        why = _computed(expr) or (
            "some of it is frozen, or has another state"
            if len(set(slots)) > 1 or held != held[:1] * len(held)
            else "it is put together over parameter groups"
            if len(numbers) > 1
            else _unlike(state, sources, expr)
        )
        if why:
            stuck.append(f"{key}: {why}")
            continue
        number = numbers.pop()
        if number is not None:
            groups[number].append(key)
        if held[0]:
            values[key] = held[0]
        if slots[0]:
            tensors[key] = {
                slot: _slot(state, sources, expr, slot)
                for slot in sorted(slots[0], key=_place(state, sources))
            }
    stuck += [f"{key}: it is dropped" for key in sorted(known - used)]
    if stuck:
        raise UsageError(
            "the optimizer's state of these weights can't follow: the output has them not as they were",
            problems=stuck,
            remedy="leave the optimizer behind with --no-optimizer",
        )
    named = [{**g, PARAMS: keys} for g, keys in zip(state.groups, groups, strict=True)]
    return Followed(state.name, tensors, values, named, state.rest)


def _scalar(value: object) -> Expr:
    assert isinstance(value, (int, float))
    return Constant(TensorSpec(BY_NAME["float32"], ()), float(value))


def _sources(expr: Expr, known: Collection[str]) -> Iterator[str]:
    """The weights that an output is made of; of a tied one's names the one that has a state."""
    if isinstance(expr, Take):
        yield expr.entry.key
    children = [list(_sources(c, known)) for c in expr.children]
    with_state = [keys for keys in children if not set(keys).isdisjoint(known)]
    for keys in with_state if isinstance(expr, Same) and with_state else children:
        yield from keys


def _place(state: OptimizerState, sources: Sequence[str]) -> Callable[[str], int]:
    """The slots in their own order."""
    return list(state.tensors[sources[0]]).index


def _slot(state: OptimizerState, sources: Sequence[str], expr: Expr, slot: str) -> Expr:
    """A moment of an output, moved as its weight is; a step of several weights, which must agree."""
    weights = {t.entry.key: t.spec.shape for t in takes(expr)}
    held: dict[str, Expr] = {s: Take(state.tensors[s][slot]) for s in sources}
    if all(h.spec.shape == weights[s] for s, h in held.items()):
        return _moved(expr, held)
    return Same(tuple(held.values())) if len(held) > 1 else held[sources[0]]


def _unlike(state: OptimizerState, sources: Sequence[str], expr: Expr) -> str | None:
    """Why a slot can't be moved as its weight is: it has not an element for each of the weight's (rows and
    columns of Adafactor). None where it can, where the weight is only renamed, and for steps."""
    if _renamed(expr):
        return None
    weights = {t.entry.key: t.spec.shape for t in takes(expr)}
    odd = [
        f"its {slot} is {entry.spec} and it is {list(weights[s])}"
        for s in sources
        for slot, entry in state.tensors.get(s, {}).items()
        if entry.spec.numel > 1 and entry.spec.shape != weights[s]
    ]
    return next(iter(odd), None)


def _renamed(expr: Expr) -> bool:
    """Is every element where it was?"""
    if isinstance(expr, (Cast, Affine)):
        return _renamed(expr.of)
    return isinstance(expr, Take) or (isinstance(expr, Same) and all(map(_renamed, expr.parts)))


def _computed(expr: Expr) -> str | None:
    """Why an expression has no meaning for moments; None where it only moves elements."""
    if isinstance(expr, Sum):
        return "it is a sum"
    if isinstance(expr, Affine) and expr.scale != 1:
        return "it is scaled"
    if not isinstance(expr, _MOVES):
        return "it is computed"
    return next(filter(None, map(_computed, expr.children)), None)


_MOVES = (Take, Slice, Concat, Reshape, Permute, Cast, Same, Pad, Affine, Constant, Normal)


def _moved(expr: Expr, held: Mapping[str, Expr]) -> Expr:
    """``expr`` with other tensors for its sources, without casts and shifts; zeros for what no source has."""
    match expr:
        case Take():
            return held[expr.entry.key]
        case Cast() | Affine():
            return _moved(expr.of, held)
        case Slice():
            return Slice(_moved(expr.of, held), expr.dim, expr.start, expr.stop)
        case Reshape():
            return Reshape(_moved(expr.of, held), expr.shape)
        case Permute():
            return Permute(_moved(expr.of, held), expr.dims)
        case Pad():
            return Pad(_moved(expr.of, held), expr.dim, expr.before, expr.after)
        case Concat():
            return Concat(tuple(_moved(p, held) for p in expr.parts), expr.dim)
        case Same():
            known = [p for p in expr.parts if all(t.entry.key in held for t in takes(p))]
            return Same(tuple(_moved(p, held) for p in known))
        case Constant() | Normal():
            dtype = next(iter(held.values())).spec.dtype
            return Constant(TensorSpec(dtype, expr.spec.shape))
    raise AssertionError(type(expr).__name__)
