"""The way back, tried on the real keys: what a stage made must come back under its old names and shapes.

A pack's examples show that single keys return. Whether the inverse is unambiguous on this checkpoint only
this checkpoint can say: two rules may write names that one of them would take back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from remap.errors import PlanError
from remap.expr import Expr, Take
from remap.packs.applying.gather import Made, gather
from remap.packs.applying.params import Resolved
from remap.packs.applying.stage import Outcome, apply
from remap.packs.language.pack import Pack, Rule
from remap.packs.matching.keyset import KeySet
from remap.packs.matching.owners import Bound
from remap.types import Entry, TensorSpec


def prove(
    pack: Pack,
    undo: Sequence[Bound],
    values: Resolved,
    outcome: Outcome,
    origins: Sequence[int | Made],
    after: KeySet,
    exprs: Sequence[Expr],
    specs: Mapping[int, TensorSpec],
) -> None:
    """Undo a stage on the keys that it made. Raises PlanError with those that don't come back.

    undo     the stage's rules for the other direction
    origins  where each of the new keys comes from
    specs    of the keys that rules with ops own, by place
    """
    back = apply(undo, after, None)
    lines = list(_renamed(pack, outcome, back, origins, after))
    if outcome.claimed:
        lines += _transformed(pack, outcome, back, values, origins, exprs, specs)
    if lines:
        raise PlanError(
            "keys that the inverse does not bring back",
            where=pack.name,
            problems=lines,
            remedy="narrow the rule, or say inverse: none with because:",
        )


def _stated(rule: Rule, undone: Rule | None) -> bool:
    """Has the key no way back, by what an author said? Also where it could be that of a rule without one."""
    return rule.lossy or rule.only is not None or (undone is not None and undone.does == "refuse")


def _renamed(
    pack: Pack, outcome: Outcome, back: Outcome, origins: Sequence[int | Made], after: KeySet
) -> list[str]:
    lines: list[str] = []
    keys = outcome.keys.keys
    for n, place in enumerate(origins):
        if not isinstance(place, int) or back.outputs[n] == keys[place]:
            continue
        rule = outcome.rules[place]
        if rule is not None and not _stated(rule, back.rules[n]):
            lines.append(f"{keys[place]} -> {after.keys[n]} -> {_found(back, n)}: {pack.place(rule)}")
    return lines


def _found(back: Outcome, place: int) -> str:
    found = back.outputs[place]
    if found is not None:
        return found
    rules: tuple[Rule, ...] = next((r for p, r in back.conflicts if p == place), ())
    return f"owned by {' and '.join(r.id for r in rules)}" if rules else "owned by no rule"


def _transformed(
    pack: Pack,
    outcome: Outcome,
    back: Outcome,
    values: Resolved,
    origins: Sequence[int | Made],
    exprs: Sequence[Expr],
    specs: Mapping[int, TensorSpec],
) -> list[str]:
    """The same for rules with ops: names and shapes, each output taken as if it lay in a file."""
    refused = {rule.id for _, rule in back.refused}
    refused |= {m.rule.id for m in (origins[n] for n, _ in back.refused) if isinstance(m, Made)}
    wanted = {
        outcome.keys.keys[c.place]: (specs[c.place], c.bound.rule)
        for c in outcome.claimed
        if not c.bound.rule.lossy and c.bound.rule.only is None and c.bound.rule.id not in refused
    }
    stand_ins = [Take(Entry(key, expr.spec)) for key, expr in zip(back.keys.keys, exprs, strict=True)]
    try:
        made = {m.key: m.expr.spec for m in gather(pack, back, stand_ins, values.numbers)}
    except PlanError as e:
        return [f"on the way back: {p}" for p in e.problems]
    lines: list[str] = []
    for key, (spec, rule) in wanted.items():
        if made.get(key) != spec:
            lines.append(f"{key} {spec} comes back as {made.get(key)}: {pack.place(rule)}")
    return lines
