"""A source and rules -> the plan of a conversion; and the plan that a receipt tells of, once more."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import remap.parallel as parallel
import remap.receipt as receipts
from remap.dtypes import weight_dtype
from remap.errors import UsageError
from remap.formats import registry
from remap.formats.base import Ranked
from remap.opening import Source, opened, unmerged
from remap.packs import load
from remap.packs.language.pack import Pack
from remap.parallel import AS_FOUND, Settings
from remap.plan import Plan, make_plan
from remap.receipt import Receipt

Rules = Iterable[str | Path] | str | Path
"""A pack, or packs in order: ``family/name`` or a path of a YAML file."""


def plan(
    source: Source,
    rules: Rules = (),
    *,
    inverse: bool = False,
    params: Mapping[str, str] | None = None,
    dtype: str | None = None,
    again: Iterable[str] = (),
    at: str | None = None,
    tolerant: bool = False,
    tp: int | None = None,
    settings: Settings = AS_FOUND,
) -> Plan:
    """What a conversion would do, key by key; no packs give the identity.

    rules    a pack, or packs in order: ``family/name`` or a path of a YAML file
    inverse  apply them backwards, the last first
    params   values of the packs' parameters, by name
    dtype    cast floating-point tensors to this type
    again    rules that may be applied to names that they already made
    tolerant what a conversion would refuse is among the plan's ``troubles`` instead of raised
    tp       how many tensor-parallel ranks are to be written; None for as many as the format has
    settings how tensor-parallel ranks are merged and divided
    """
    found, settings, left = opened(source, at=at, settings=settings, params=params)
    found = parallel.known(found, settings) if tp else found
    packs = load_packs(rules)
    rider = parallel.rider(found, packs, settings) if found.ranks or tp else None
    return make_plan(
        found,
        packs,
        inverse=inverse,
        params=dict(params or {}),
        remembered={s.pack: s.params for s in left.steps} if left else {},
        again=frozenset(again),
        cast=weight_dtype(dtype) if dtype else None,
        tolerant=tolerant,
        ride=rider.classes if rider else None,
        spare=rider.params if rider else parallel.spoken_of(found, settings),
    )


def replayed(receipt: Receipt, source: Source, rules: Rules) -> Plan:
    """The plan that a receipt tells of, made of ``source`` once more.

    rules  its packs, where they can't be found by their names

    Raises UsageError where it can't be made again.
    """
    if any(step.pack == receipts.BY_ADAPTER for step in receipt.steps):
        raise UsageError(
            "it was made by remap adapter, of which the receipt alone can't do the work again",
            where=receipt.source.name,
            remedy="make it once more elsewhere, and compare: remap diff A B",
        )
    packs = load_packs(rules) or [load(step.pack) for step in receipt.steps]
    if [p.digest for p in packs] != [s.digest for s in receipt.steps]:
        raise UsageError(
            "the packs are not those that the receipt names, or their contents changed",
            problems=[f"{s.pack} {s.version}" for s in receipt.steps],
            remedy="give the packs that made this output with -r",
        )
    how = receipt.parallel
    settings = Settings(how.layout, how.params, {}, how.copies, how.padded) if how else Settings()
    found = parallel.whole(unmerged(source, receipt.source.at, settings), settings)
    rider = parallel.rider(found, packs, settings) if how and (found.ranks or how.tp) else None
    made = make_plan(
        found,
        packs,
        inverse=any(step.inverse for step in receipt.steps),
        remembered={step.pack: step.params for step in receipt.steps},
        again=receipt.again,
        cast=weight_dtype(receipt.dtype) if receipt.dtype else None,
        ride=rider.classes if rider else None,
    )
    if how is None or how.tp is None or not isinstance(registry.get(receipt.format), Ranked):
        return made
    return parallel.rank_plan(made, parallel.spread(parallel.placed(made, settings), how.tp))


def load_packs(rules: Rules) -> list[Pack]:
    """The packs of a ``rules`` argument. Raises PackError."""
    return [load(str(r)) for r in ([rules] if isinstance(rules, (str, Path)) else rules)]
