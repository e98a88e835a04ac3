"""A base under the names that an adapter was made for: as it is, or renamed by a pack."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from remap import api
from remap.audits.suggest.packs import likely
from remap.dialects.wrapping import Around, bare
from remap.errors import RemapError, UsageError
from remap.packs import available
from remap.plan import Plan
from remap.types import Catalog


def fitted(
    base: Catalog, modules: Iterable[str], around: Around, rules: api.Rules, params: Mapping[str, str]
) -> tuple[Plan, tuple[str, ...]]:
    """The plan of the base, and what to know of it.

    modules  that the adapter changes
    rules    packs that were asked for; without any, the installed ones are tried where the base has none of
             the modules

    Raises UsageError, naming the modules that the base has not.
    """
    wanted = sorted(set(modules))
    plan = api.plan(base, rules, params=params)
    if not rules and wanted and len(_missing(plan, wanted, around)) == len(wanted):
        found = _by_pack(base, wanted, around, params)
        if found:
            return found
    missing = _missing(plan, wanted, around)
    if missing:
        raise UsageError(
            f"the base has {len(missing)} of the adapter's {len(wanted)} modules not",
            where=base.asked or base.root,
            problems=missing,
            remedy="give the base that it was made for, or the pack that renames this one (-r PACK)",
        )
    return plan, ()


def modules_of(keys: Iterable[str]) -> set[str]:
    """Every module that has one of the keys in it."""
    return {".".join(s[:n]) for s in (k.split(".") for k in keys) for n in range(1, len(s))}


def _missing(plan: Plan, wanted: list[str], around: Around) -> list[str]:
    there = modules_of(bare(o.key, around) for o in plan.outputs)
    return [m for m in wanted if m not in there]


def _by_pack(
    base: Catalog, wanted: list[str], around: Around, params: Mapping[str, str]
) -> tuple[Plan, tuple[str, ...]] | None:
    """By the installed pack that gives all of the modules; none where two give different weights."""
    plans: dict[frozenset[str], tuple[Plan, str]] = {}
    few = replace(base, entries=dict(base.entries))
    for name, _ in likely(base.entries, available()):
        for inverse in (False, True):
            try:
                plan = api.plan(few, [name], inverse=inverse, params=params)
            except RemapError:
                continue
            if not _missing(plan, wanted, around):
                names = frozenset(bare(o.key, around) for o in plan.outputs)
                plans.setdefault(names, (plan, f"{name}{', backwards' * inverse}"))
    if len(plans) != 1:
        return None
    ((plan, name),) = plans.values()
    where = Path(base.asked or base.root).name
    return plan, (f"{where} is renamed by {name}",)
