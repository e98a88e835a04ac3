"""Installed packs: which of them makes the names match, forward or back?

A pack is tried on one key of each skeleton first; only where it owns all of these is it tried on all keys.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from remap.audits.comparison import Comparison
from remap.audits.names.wrappers import unwrap
from remap.audits.suggest.score import fitting
from remap.audits.suggest.skeletons import group
from remap.errors import RemapError
from remap.packs import Pack, available, load
from remap.plan import Plan, make_plan
from remap.types import Catalog, Entry


@dataclass(frozen=True)
class Tried:
    """A pack that fits the source: its name and direction, and offered key -> the target's key."""

    pack: str
    inverse: bool
    names: dict[str, str]
    through_wrappers: bool


def names(table: Comparison) -> Iterator[Tried]:
    """Every installed pack that owns all of the source's keys."""
    source = as_catalog(table)
    few = _few(source)
    for name in available():
        try:
            pack = load(name)
        except RemapError:
            continue
        for inverse in (False, True):
            found = _try(table, source, few, pack, inverse)
            if found:
                yield found


def as_catalog(table: Comparison) -> Catalog:
    """What the source offers, as a key list."""
    if table.plan is None:
        return table.source
    return replace(table.source, entries={k: Entry(k, s) for k, s in table.offered.items()})


def _few(source: Catalog) -> Catalog:
    keys = [next(iter(g.values())) for g in group(source.entries).values()]
    return replace(source, entries={k: source.entries[k] for k in keys})


def _try(table: Comparison, source: Catalog, few: Catalog, pack: Pack, inverse: bool) -> Tried | None:
    if _plan(few, pack, inverse, partial=True) is None:
        return None
    plan = _plan(source, pack, inverse, partial=False)
    if plan is None:
        return None
    made = {o.sources[0]: o.key for o in plan.outputs if len(o.sources) == 1}
    found = fitting(table, made)
    plain = {unwrap(k): k for k in table.target.specs}
    other = fitting(table, {s: plain[u] for s, k in made.items() if (u := unwrap(k)) in plain})
    if len(other) > len(found):
        return Tried(pack.name, inverse, other, through_wrappers=True)
    return Tried(pack.name, inverse, found, through_wrappers=False)


def _plan(source: Catalog, pack: Pack, inverse: bool, *, partial: bool) -> Plan | None:
    try:
        return make_plan(source, [pack], inverse=inverse, partial=partial)
    except RemapError:
        return None
