"""Packs against maps that a library computed itself: {old key: new key}, several old ones to a merge.

A map is right if the plan gives every key of the list the target that the map says, and the inverse
brings the list back. ``make corpus`` prints what comes of it, family by family.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from remap.errors import RemapError
from remap.packs import Pack
from remap.plan import Plan, make_plan
from remap.types import Catalog, Entry


@dataclass(frozen=True, slots=True)
class Judged:
    """How a pack did on one key list; right where there are no problems."""

    name: str
    pack: str
    keys: int
    problems: tuple[str, ...]


def judge(name: str, pack: Pack, source: Catalog, wanted: Mapping[str, str]) -> Judged:
    """Plan ``source`` and compare with ``wanted``; then go back."""
    try:
        plan = make_plan(source, [pack])
        problems = [*_differences(plan, source, wanted), *_back(plan, pack, source)]
    except RemapError as e:
        problems = [str(e)]
    return Judged(name, pack.name, len(source.entries), tuple(problems))


def _differences(plan: Plan, source: Catalog, wanted: Mapping[str, str]) -> list[str]:
    found = {key: o.key for o in plan.outputs for key in o.sources}
    return [
        f"{key} becomes {found.get(key)}; it should be {wanted[key]}"
        for key in source.entries
        if key in wanted and found.get(key) != wanted[key]
    ]


def _back(plan: Plan, pack: Pack, source: Catalog) -> list[str]:
    made = {o.key: Entry(o.key, o.expr.spec) for o in plan.outputs}
    after = Catalog("keylist", source.root, (), made, config=source.config)
    remembered = {step.pack: step.params for step in plan.steps}
    back = make_plan(after, [pack], inverse=True, remembered=remembered)
    dropped = {d.key for d in plan.drops}
    before = {k: e.spec for k, e in source.entries.items() if k not in dropped}
    found = {o.key: o.expr.spec for o in back.outputs}
    return [
        f"back again, {key} is {found.get(key)}; it was {before.get(key)}"
        for key in sorted(before.keys() | found.keys())
        if before.get(key) != found.get(key)
    ]
