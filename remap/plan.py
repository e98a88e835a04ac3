"""Catalog + packs + parameters -> the plan: every output key, its expression, its rule; every drop.

    make_plan(catalog, packs, *, inverse, params, remembered, again, cast, partial, tolerant) -> Plan

``packs`` compose in order; ``inverse`` runs them in reverse order, each undone. Without packs the plan is
the identity. ``params`` are the user's (``-p``), ``remembered`` what a source's receipt says of each pack
(``{pack: {param: value}}``: the ``params`` of its steps). ``again`` names rules that may be applied to
keys that look converted already. ``ride`` has partition classes follow the keys; ``spare`` are names of
``params`` that others than the packs take. ``cast`` changes floats only. ``partial`` keys (an example) need
not make every rule fire. A ``tolerant`` plan is for an audit: what a conversion would refuse is among its
troubles. Entries without a location (a key list) plan as well. Raises UsageError, PlanError.
"""

from __future__ import annotations

import gc
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property

from remap.dtypes import DType
from remap.errors import UsageError
from remap.expr import Cast, Expr, Take, takes
from remap.packs.applying.compose import After, Applied, Run
from remap.packs.applying.gather import Made
from remap.packs.applying.params import Given, check_explicit
from remap.packs.applying.riding import Ride, Riding
from remap.packs.applying.trouble import Trouble, Troubles
from remap.packs.language.pack import Direction, Pack, Rule, UseStage
from remap.packs.language.schema import suggestion
from remap.packs.matching.keyset import KeySet
from remap.partitions.base import Partition
from remap.types import Catalog

VERSION = 1
"""The version of ``to_json``."""


@dataclass(frozen=True, slots=True)
class Output:
    """One tensor of the result.

    rule     the rules that led here, joined by `` > ``; empty where there was no pack
    sources  the source keys that it reads
    op       ``copy``, ``keep``, ``rename``, or the ops by name
    partition  how ranks divide it, where that was asked for and is known
    """

    key: str
    expr: Expr
    rule: str
    sources: tuple[str, ...]
    op: str
    partition: Partition | None = None


@dataclass(frozen=True, slots=True)
class Drop:
    """A source key that is not carried over, and why."""

    key: str
    rule: str
    because: str


@dataclass(frozen=True, slots=True)
class Step:
    """A pack of the chain, as a receipt remembers it, with the parameters of the packs that it uses."""

    pack: str
    version: str
    digest: str
    inverse: bool
    params: Mapping[str, int | str]


@dataclass(frozen=True)
class Plan:
    """The compiled conversion. One with ``troubles`` is for reading, not for running."""

    catalog: Catalog
    outputs: tuple[Output, ...]
    drops: tuple[Drop, ...] = ()
    steps: tuple[Step, ...] = ()
    notes: tuple[str, ...] = ()
    cast: DType | None = None
    troubles: tuple[Trouble, ...] = ()

    @cached_property
    def nbytes(self) -> int:
        """Bytes of all outputs."""
        return sum(o.expr.spec.nbytes for o in self.outputs)

    def to_json(self) -> dict[str, object]:
        """The document of ``plan --json``."""
        return {
            "version": VERSION,
            "steps": [
                {
                    "pack": s.pack,
                    "version": s.version,
                    "digest": s.digest,
                    "inverse": s.inverse,
                    "params": dict(s.params),
                }
                for s in self.steps
            ],
            "outputs": [
                {
                    "key": o.key,
                    "dtype": o.expr.spec.dtype.name,
                    "shape": list(o.expr.spec.shape),
                    "sources": list(o.sources),
                    "rule": o.rule,
                    "op": o.op,
                }
                for o in self.outputs
            ],
            "drops": [{"key": d.key, "rule": d.rule, "because": d.because} for d in self.drops],
            "notes": list(self.notes),
            "warnings": list(self.catalog.warnings),
        }


def make_plan(
    catalog: Catalog,
    packs: Sequence[Pack],
    *,
    inverse: bool = False,
    params: Mapping[str, str] | None = None,
    remembered: Mapping[str, Mapping[str, object]] | None = None,
    again: Iterable[str] = (),
    cast: DType | None = None,
    partial: bool = False,
    tolerant: bool = False,
    ride: Ride | None = None,
    spare: Collection[str] = (),
) -> Plan:
    """Compile the conversion of ``catalog`` by ``packs``. Raises UsageError, PlanError."""
    with _uncollected():
        return _make(catalog, packs, inverse, params, remembered, again, cast, partial, tolerant, ride, spare)


@contextmanager
def _uncollected() -> Iterator[None]:
    """Without the garbage collector: a plan is millions of small objects, and none of them is garbage.

    At the end they are old at once (what is frozen and freed again is in the oldest generation), or the
    next object that anybody makes would have all of them looked through.
    """
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            if not gc.get_freeze_count():
                gc.freeze()
                gc.unfreeze()
            gc.enable()


def _make(
    catalog: Catalog,
    packs: Sequence[Pack],
    inverse: bool,
    params: Mapping[str, str] | None,
    remembered: Mapping[str, Mapping[str, object]] | None,
    again: Iterable[str],
    cast: DType | None,
    partial: bool,
    tolerant: bool,
    ride: Ride | None,
    spare: Collection[str],
) -> Plan:
    chain = tuple(packs)
    check_explicit(chain, params or {}, spare)
    twice = frozenset(again)
    _check_again(chain, twice)
    direction: Direction = "inverse" if inverse else "forward"
    table = _Table(catalog, ride)
    troubles = Troubles(tolerant)
    runs: list[list[Applied]] = []
    for pack in reversed(chain) if inverse else chain:
        given = Given(params or {}, _memory(pack, remembered or {}), catalog.config)
        runs.append(Run(pack, direction, given, twice, partial, troubles).on(table))
        table.arrive(pack.source_layout if inverse else pack.target_layout)
    return Plan(
        catalog=catalog,
        outputs=tuple(table.outputs(cast)),
        drops=tuple(table.drops),
        steps=tuple(_step(run) for run in runs),
        notes=(*(note for run in runs for note in _notes(run)), *_unconfirmed(chain)),
        cast=cast,
        troubles=tuple(troubles.found.values()),
    )


def _memory(pack: Pack, remembered: Mapping[str, Mapping[str, object]]) -> dict[str, object]:
    """What the receipt says of the pack, and of those that it undoes."""
    found: dict[str, object] = {}
    for stage in pack.stages:
        if isinstance(stage, UseStage) and stage.direction == "inverse":
            found |= _memory(stage.pack, remembered)
    return {**found, **remembered.get(pack.name, {})}


def _check_again(packs: tuple[Pack, ...], again: frozenset[str]) -> None:
    known = sorted({r.id for p in packs for r in p.all_rules})
    strange = sorted(again - set(known))
    if strange:
        raise UsageError(
            "; ".join(f"no rule here is called {r!r}{suggestion(r, known)}" for r in strange),
            remedy=f"there are: {', '.join(known)}" if known else None,
        )


def _step(run: list[Applied]) -> Step:
    """One step a pack that was asked for. Used packs that differ in a parameter are told apart."""
    params: dict[str, int | str] = {}
    for a in run:
        for name, value in a.values.spelled.items():
            if params.setdefault(name, value) != value:
                params[f"{a.pack.name}:{name}"] = value
    first = run[0]
    return Step(first.pack.name, first.pack.version, first.pack.digest, first.direction == "inverse", params)


def _notes(applied: Iterable[Applied]) -> Iterable[str]:
    """Where the values of each pack's parameters are from, on one line; defaults say nothing new."""
    for a in applied:
        found = [(name, value, a.values.origins[name]) for name, value in a.values.spelled.items()]
        told = [f"{name} = {value} ({origin})" for name, value, origin in found if origin != "default"]
        if told:
            yield f"{a.pack.name}: {', '.join(told)}"


def _unconfirmed(packs: Iterable[Pack]) -> Iterable[str]:
    """What the authors of the rules have still to make sure of."""
    for pack in packs:
        for rule in pack.all_rules:
            if rule.confirm:
                yield f"rule {rule.id} of {pack.name} is not confirmed: {rule.confirm}"


@dataclass(frozen=True)
class _Trail:
    """Which rules and ops a key has passed. One object for all keys of the same way."""

    rules: tuple[str, ...] = ()
    ops: tuple[str, ...] = ()
    kept: str = ""
    after: dict[tuple[str, str], _Trail] = field(default_factory=dict, compare=False, repr=False)

    def then(self, rule: Rule, op: str) -> _Trail:
        """The trail with one more rule."""
        found = self.after.get((rule.id, op))
        if found is None:
            if op == "keep":
                found = _Trail(self.rules, self.ops, rule.id)
            else:
                found = _Trail((*self.rules, rule.id), (*self.ops, op), self.kept)
            self.after[rule.id, op] = found
        return found

    @cached_property
    def rule(self) -> str:
        return " > ".join(self.rules) or self.kept

    @cached_property
    def op(self) -> str:
        real = [o for o in self.ops if o != "rename"]
        if real:
            return " > ".join(real)
        return "rename" if self.ops else "keep" if self.kept else "copy"


class _Table:
    """The keys with their expressions, as stage after stage is applied."""

    def __init__(self, catalog: Catalog, ride: Ride | None) -> None:
        self.keys = KeySet(catalog.entries)
        self.exprs: list[Expr] = [Take(e) for e in catalog.entries.values()]
        self.trails = [_Trail()] * len(self.exprs)
        self.drops: list[Drop] = []
        self.riding = Riding([catalog.partitions.get(k) for k in self.keys.keys], ride) if ride else None

    def advance(self, after: After) -> None:
        rules = after.outcome.rules
        for place, rule in enumerate(rules):
            if rule is not None and rule.does == "drop":
                because = rule.because or ""
                self.drops += [Drop(t.entry.key, rule.id, because) for t in takes(self.exprs[place])]
        exprs: list[Expr] = []
        trails: list[_Trail] = []
        for origin in after.origins:
            if isinstance(origin, Made):
                exprs.append(origin.expr)
                op = " > ".join(o.name for o in origin.rule.ops) or origin.rule.does
                before = self.trails[origin.place] if origin.place < len(self.trails) else _Trail()
                trails.append(before.then(origin.rule, op))
                continue
            rule = rules[origin]
            assert rule is not None
            exprs.append(self.exprs[origin])
            trails.append(self.trails[origin].then(rule, rule.does))
        self.keys, self.exprs, self.trails = after.keys, exprs, trails
        if self.riding:
            self.riding.advance(after)

    def arrive(self, layout: str | None) -> None:
        """A pack is done, whose keys are those of ``layout``."""
        if self.riding:
            self.riding.arrive(layout, self.keys.keys, self.exprs)

    def outputs(self, cast: DType | None) -> Iterable[Output]:
        classes = self.riding.classes if self.riding else [None] * len(self.exprs)
        for key, expr, trail, cls in zip(self.keys.keys, self.exprs, self.trails, classes, strict=True):
            sources = (expr.entry.key,) if isinstance(expr, Take) else _sources(expr)
            op = trail.op
            if cast is not None and expr.spec.dtype.is_float and expr.spec.dtype != cast:
                expr = Cast(expr, cast)
                op = "cast" if op in ("copy", "keep", "rename") else f"{op} > cast"
            yield Output(key, expr, trail.rule, sources, op, cls)


def _sources(expr: Expr) -> tuple[str, ...]:
    return tuple(dict.fromkeys(t.entry.key for t in takes(expr)))
