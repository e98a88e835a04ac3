"""Adapter + packs -> the plan of a new adapter, and its configuration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from remap.adapters.check import check
from remap.adapters.migrating.carriers import factors as ia3
from remap.adapters.migrating.carriers import low_rank, renamed, whole
from remap.adapters.migrating.config import Config, Found, configured
from remap.adapters.migrating.job import Carried, Job
from remap.adapters.model import Adapter
from remap.adapters.placing.base import base_of
from remap.adapters.placing.heads import with_heads
from remap.adapters.placing.places import places
from remap.dialects import registry
from remap.errors import AlreadyConverted, PlanError, UsageError
from remap.expr import takes
from remap.packs import Pack
from remap.plan import Output, Plan, make_plan
from remap.types import Catalog

DIALECT = "peft"
_READ = ("peft", "diffusers")
"""Dialects whose keys have the modules' paths, and no base weights between them."""


@dataclass(frozen=True)
class Migrated:
    """What ``remap.adapters.write.write_adapter`` takes.

    plan    of the new adapter's tensors
    config  its configuration
    plain   it is not needed to know the scale: every alpha is the rank
    """

    plan: Plan
    config: Config
    plain: bool


def migrated(
    adapter: Adapter,
    packs: Sequence[Pack],
    *,
    inverse: bool = False,
    params: Mapping[str, str] | None = None,
    base: Catalog | None = None,
    base_name: str | None = None,
) -> Migrated:
    """The adapter for the base as the packs convert it.

    base       the old base: a checkpoint or a key list. Needed where packs join what the adapter changes with
               what it does not, and for short names in the configuration
    base_name  what the configuration is to call the new base

    Raises UsageError, PlanError with everything that can't be carried.
    """
    _check_dialect(adapter)
    check(adapter)
    if base is not None:
        base = with_heads(base, [p.key for p in places(adapter, base)])
    known = base_of(adapter, base)
    plan = _planned(known.catalog, packs, inverse, params, partial=not known.whole)
    job = Job(adapter, tuple(places(adapter, base)), plan, known.whole)
    found = Found(low_rank.low_rank(job), ia3.factors(job), whole.whole(job), renamed.renamed(job))
    carried = _carried(job, found)
    if job.problems:
        raise PlanError(
            "parts of the adapter can't follow its base",
            where=adapter.catalog.root,
            problems=job.problems,
            remedy="merge it into its base (remap adapter merge), and convert what comes of that",
        )
    if not carried:
        raise PlanError("nothing of the adapter is left", where=adapter.catalog.root, problems=job.notes)
    config = configured(job, found, base_name)
    outputs = tuple(_output(c) for c in carried)
    _check_unique(adapter, outputs)
    plain = all(r.alpha == r.rank for r in found.ranked) and not config.get("use_rslora")
    return Migrated(
        Plan(adapter.catalog, outputs, steps=plan.steps, notes=(*plan.notes, *job.notes)), config, plain
    )


def _check_dialect(adapter: Adapter) -> None:
    if adapter.dialect not in _READ:
        raise UsageError(
            f"rule packs are followed by adapters in PEFT's dialect, and this is {adapter.dialect}",
            where=adapter.catalog.root,
            remedy="extract it first (remap adapter extract), or say it in PEFT's words: migrate --to peft",
        )


def _planned(
    base: Catalog, packs: Sequence[Pack], inverse: bool, params: Mapping[str, str] | None, *, partial: bool
) -> Plan:
    try:
        return make_plan(base, packs, inverse=inverse, params=params, partial=partial)
    except PlanError as e:
        if not partial or isinstance(e, AlreadyConverted):
            raise
        raise PlanError(
            f"the modules that the adapter changes are not enough for the packs: {e.what}",
            where=e.where,
            problems=e.problems,
            remedy="give the whole base, a checkpoint or its key list: --base",
        ) from None


def _carried(job: Job, found: Found) -> list[Carried]:
    targeted = frozenset(found.modules)
    return [
        *low_rank.tensors(found.ranked),
        *(m.carried for m in found.multiplied),
        *whole.tensors(list(found.trained), targeted),
        *(c for r in found.renamed for c in r.carried),
        *renamed.unplaced(job),
    ]


def _output(carried: Carried) -> Output:
    key = registry.get(DIALECT).spell(carried.tensor)
    sources = tuple(dict.fromkeys(t.entry.key for t in takes(carried.expr)))
    return Output(key, carried.expr, carried.rule, sources, carried.op)


def _check_unique(adapter: Adapter, outputs: Sequence[Output]) -> None:
    seen: dict[str, Output] = {}
    twice = [
        f"{o.key}: {', '.join(first.sources)} and {', '.join(o.sources)}"
        for o in outputs
        if (first := seen.setdefault(o.key, o)) is not o
    ]
    if twice:
        raise PlanError("two parts of the adapter get one name", where=adapter.catalog.root, problems=twice)
