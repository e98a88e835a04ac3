"""Installed packs: which of them makes the names match, forward or back?

Those are loaded that have words in common with the unexpected keys. A pack is tried on one key of each
skeleton first; only where it owns all of these is it tried on all keys.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from remap.audits.comparison import Comparison
from remap.audits.names.masks import one_of_each
from remap.audits.names.wrappers import unwrap
from remap.errors import RemapError
from remap.packs import Pack, available, load
from remap.plan import Output, Plan, make_plan
from remap.types import Catalog, Entry

ENOUGH = 0.5
"""Share of the words of one side that the other must have."""
COMMON = frozenset({"weight", "bias"})
_TEMPLATES = re.compile(r"^\s*(?:- )?(?:from|to|keep):(.*)$", re.MULTILINE)
_HOLE = re.compile(r"\{[^{}]*\}")
_WORD = re.compile(r"[A-Za-z_]\w*")
MOST = 12
"""Packs that are tried."""


@dataclass(frozen=True)
class Tried:
    """A pack that fits the source: its name and direction, offered key -> the target's key, how many fit."""

    pack: str
    inverse: bool
    names: dict[str, str]
    after: int
    through_wrappers: bool


def names(table: Comparison) -> Iterator[Tried]:
    """Every installed pack that owns all of the source's keys."""
    source = as_catalog(table)
    few = _few(source)
    for name, text in likely(table.excess, available()):
        pack = _load(name, text)
        if pack is None:
            continue
        for inverse in (False, True):
            found = _try(table, source, few, pack, inverse)
            if found:
                yield found


def likely(keys: Iterable[str], files: Mapping[str, str]) -> list[tuple[str, str]]:
    """Names and texts of the packs (name -> file) that have to do with the keys, the nearest first.

    Most of the keys' words stand in the pack, or most words of its templates in the keys.
    """
    words = {w for k in one_of_each(keys) for w in k.split(".") if not w.isdigit()} - COMMON
    found: list[tuple[float, str, str]] = []
    for name, file in files.items():
        try:
            text = Path(file).read_text()
        except OSError:
            continue
        theirs = {
            w for line in _TEMPLATES.findall(text) for w in _WORD.findall(_HOLE.sub(" ", line))
        } - COMMON
        share = sum(w in text for w in words) / max(len(words), 1)
        other = len(theirs & words) / max(len(theirs), 1)
        if max(share, other) >= ENOUGH:
            found.append((-max(share, other), name, text))
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
    """One key of all that differ in numbered segments only."""
    return replace(source, entries={k: source.entries[k] for k in one_of_each(source.entries)})


def _try(table: Comparison, source: Catalog, few: Catalog, pack: Pack, inverse: bool) -> Tried | None:
    if _plan(few, pack, inverse, partial=True) is None:
        return None
    plan = _plan(source, pack, inverse, partial=False)
    if plan is None:
        return None
    plain = {unwrap(k): k for k in table.target.specs}
    direct = _fitting(table, plan, {k: k for k in table.target.specs})
    wrapped = _fitting(table, plan, plain)
    through = len(wrapped) > len(direct)
    best = wrapped if through else direct
    if all(o.op in ("copy", "keep") for o in best.values()):
        return None  # it owns the keys, and changes nothing that helps
    names = {source: key for key, o in best.items() for source in o.sources}
    return Tried(pack.name, inverse, names, len(best), through)


def _fitting(table: Comparison, plan: Plan, places: Mapping[str, str]) -> dict[str, Output]:
    """The target's keys that outputs fit, by name (through ``places``: name -> key) and shape."""
    found: dict[str, Output] = {}
    for o in plan.outputs:
        key = places.get(o.key) or places.get(unwrap(o.key))
        if key and (table.unshaped or o.expr.spec.shape == table.target.specs[key].shape):
            found[key] = o
    return found


def _plan(source: Catalog, pack: Pack, inverse: bool, *, partial: bool) -> Plan | None:
    try:
        return make_plan(source, [pack], inverse=inverse, partial=partial)
    except RemapError:
        return None
