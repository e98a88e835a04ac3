"""A base under the names that an adapter was made for: as it is, or renamed by a pack."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from remap import planning
from remap.adapters.placing.heads import left_out
from remap.audits.suggest.packs import likely
from remap.dialects.base import Dialect
from remap.dialects.wrapping import ALSO_NAMES, Around, bare, present
from remap.errors import RemapError, UsageError
from remap.packs import available
from remap.plan import Output, Plan
from remap.planning import Rules
from remap.types import Catalog


@dataclass(frozen=True)
class Target:
    """What the base is to become: the model of this dialect, wrapped so."""

    dialect: Dialect
    around: Around

    @property
    def modules(self) -> list[str]:
        """The modules that the base must have."""
        return sorted(m for m in self.around if m)


def fitted(
    base: Catalog, target: Target, rules: Rules, params: Mapping[str, str]
) -> tuple[Plan, tuple[str, ...]]:
    """The plan of the base, and what to know of it.

    rules  packs that were asked for; without any, the installed ones are tried where the base has none of
           the modules

    Raises UsageError, naming the modules that the base has not.
    """
    plan = planning.plan(base, rules, params=params)
    missing, pack = _missing(plan, target), ""
    found = _by_pack(base, target, params) if missing and not rules else None
    if found and len(missing) == len(target.modules):
        plan, missing, pack = found
    if missing:
        raise UsageError(
            f"the base lacks {len(missing)} of the adapter's {len(target.modules)} modules"
            + f", also renamed by {pack}" * bool(pack),
            where=base.asked or base.root,
            problems=missing,
            remedy=_remedy(len(missing), found),
        )
    return plan, (f"{(base.asked or base.root).name} is renamed by {pack}",) * bool(pack)


def _remedy(missing: int, found: tuple[Plan, list[str], str] | None) -> str:
    """``found`` as ``_by_pack`` gives it."""
    if found is not None and len(found[1]) < missing:
        return f"rename the base first (remap convert -r): {found[2]} gives {missing - len(found[1])} of them"
    return "give the base that it was made for, or the pack that renames this one (-r PACK)"


def _by_pack(base: Catalog, target: Target, params: Mapping[str, str]) -> tuple[Plan, list[str], str] | None:
    """By the installed pack that gives most of the modules: its plan, what is missing still, its name. None
    where no pack gives any, or two give different weights."""
    plans: dict[tuple[int, frozenset[str]], tuple[Plan, str]] = {}
    for name, _ in likely(base.entries, available()):
        for inverse in (False, True):
            try:
                plan = planning.plan(base, [name], inverse=inverse, params=params)
            except RemapError:
                continue
            missing = len(_missing(plan, target))
            names = frozenset(bare_names(plan, target))
            if missing < len(target.modules) and not _wraps_more(names, target):
                plans.setdefault((missing, names), (plan, f"{name}{', backwards' * inverse}"))
    fewest = min((missing for missing, _ in plans), default=0)
    best = [found for (missing, _), found in plans.items() if missing == fewest]
    if len(best) != 1:
        return None
    plan, name = best[0]
    return plan, _missing(plan, target), name


def _wraps_more(names: Iterable[str], target: Target) -> bool:
    """Has it wrapped modules that the adapter does not change?"""
    words = {w for wrap in target.around.values() for w in wrap} - ALSO_NAMES
    return any(words.intersection(n.split(".")) for n in names)


def bare_names(plan: Plan, target: Target) -> dict[str, Output]:
    """The base's weights by the names that they have without adapters; adapters are left out. A head that is
    the embedding, and is in no file for that, is there if the adapter wraps it."""
    weights = [o for o in plan.outputs if target.dialect.parse(o.key) is None]
    there = present(target.around, (o.key for o in weights))
    found = {bare(o.key, there): o for o in weights}
    heads = left_out((f"{m}.weight" for m in target.modules), found, plan.catalog.config)
    return found | {head: replace(found[embedding], key=head) for head, embedding in heads.items()}


def modules_of(keys: Iterable[str]) -> set[str]:
    """Every module that has one of the keys in it."""
    return {".".join(s[:n]) for s in (k.split(".") for k in keys) for n in range(1, len(s))}


def _missing(plan: Plan, target: Target) -> list[str]:
    there = modules_of(bare_names(plan, target))
    return [m for m in target.modules if m not in there]
