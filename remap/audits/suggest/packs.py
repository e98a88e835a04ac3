"""Installed packs: which of them makes the names match, forward or back?

Those are loaded in whose text most of the source's words occur. A pack is tried on one key of each skeleton
first; only where it owns all of these is it tried on all keys.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from remap.audits.comparison import Comparison
from remap.audits.names.wrappers import unwrap
from remap.audits.suggest.score import fitting
from remap.audits.suggest.skeletons import group
from remap.errors import RemapError
from remap.packs import Pack, available, load
from remap.plan import Plan, make_plan
from remap.types import Catalog, Entry

ENOUGH = 0.5
"""Share of the keys' words that a pack's text must have."""
MOST = 8
"""Packs that are tried."""


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
    for name, text in likely(few.entries, available()):
        pack = _load(name, text)
        if pack is None:
            continue
        for inverse in (False, True):
            found = _try(table, source, few, pack, inverse)
            if found:
                yield found


def likely(keys: Iterable[str], files: Mapping[str, str]) -> list[tuple[str, str]]:
    """Names and texts of the packs (name -> file) that know enough of the keys' words, the best first."""
    words = {w for k in keys for w in k.split(".") if not w.isdigit()}
    found: list[tuple[float, str, str]] = []
    for name, file in files.items():
        try:
            text = Path(file).read_text()
        except OSError:
            continue
        share = sum(w in text for w in words) / max(len(words), 1)
        if share >= ENOUGH:
            found.append((-share, name, text))
    return [(name, text) for _, name, text in sorted(found)[:MOST]]


@cache
def _load(name: str, text: str) -> Pack | None:
    """The pack, once a process as long as its ``text`` stays the same; None where it is wrong."""
    try:
        return load(name)
    except RemapError:
        return None


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
    wrapped = fitting(table, {s: plain[u] for s, k in made.items() if (u := unwrap(k)) in plain})
    through = len(wrapped) > len(found)
    best = wrapped if through else found
    if all(made[key] == key for key in best):
        return None  # it owns the keys, and changes nothing that helps
    return Tried(pack.name, inverse, best, through)


def _plan(source: Catalog, pack: Pack, inverse: bool, *, partial: bool) -> Plan | None:
    try:
        return make_plan(source, [pack], inverse=inverse, partial=partial)
    except RemapError:
        return None
