"""Packs in order -> stages in order, applied to a table of keys.

Forward, a pack's stages run as written; inverse, in reverse with each rule undone. A used pack resolves
its own parameters on the keys that reach it. After each stage the way back is tried on the real keys.
The table belongs to the caller (``plan``): here only names are known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from remap.errors import PlanError
from remap.packs.complaints import complain
from remap.packs.invert import rules_for
from remap.packs.keyset import KeySet
from remap.packs.owners import bind
from remap.packs.pack import Direction, Pack, Rule, RuleStage, UseStage
from remap.packs.params import Given, Resolved, resolve
from remap.packs.stage import Outcome, apply


class Table(Protocol):
    """What stages are applied to."""

    @property
    def keys(self) -> KeySet:
        """The keys as they are now."""

    def advance(self, pack: Pack, outcome: Outcome, values: Resolved) -> None:
        """Become the outcome. Raises PlanError where two keys get one name."""


@dataclass(frozen=True)
class Applied:
    """A pack that was run: what a receipt says of it."""

    pack: Pack
    direction: Direction
    values: Resolved


@dataclass
class Run:
    """One pack of the chain being applied, with the packs that it uses.

    given      parameters
    again      rules that may be applied twice
    partial    the keys are an example: rules need not fire
    """

    pack: Pack
    direction: Direction
    given: Given
    again: frozenset[str] = frozenset()
    partial: bool = False
    applied: list[Applied] = field(default_factory=list)

    def on(self, table: Table) -> list[Applied]:
        """Apply the pack to the table. Raises PlanError."""
        self._input = table.keys
        self._pack(self.pack, table, {})
        return self.applied

    def _pack(self, pack: Pack, table: Table, with_: Mapping[str, str]) -> None:
        values = resolve(pack, table.keys, self.given, with_)
        self.applied.append(Applied(pack, self.direction, values))
        for stage in _ordered(pack, self.direction):
            if isinstance(stage, UseStage):
                self._pack(stage.pack, table, stage.given)
            else:
                self._stage(pack, stage, table, values)

    def _stage(self, pack: Pack, stage: RuleStage, table: Table, values: Resolved) -> None:
        rules = rules_for(stage, self.direction)
        bounds = bind(rules, values.values, pack.params, pack.file)
        before = table.keys
        outcome = apply(bounds, before, self.again)
        converted = bool(outcome.unowned) and self._converted()
        blamed = self.pack if converted else pack
        complain(blamed, rules, outcome, values, partial=self.partial, converted=converted)
        table.advance(pack, outcome, values)
        if not outcome.claimed:
            _prove(pack, stage, self.direction, values, outcome, table.keys)

    def _converted(self) -> bool:
        """Are the keys that came in what the whole pack produces?"""
        return (
            len(self._input) > 0
            and _accepts(self.pack, _other(self.direction), self._input, self.given, {}) is not None
        )


def _other(direction: Direction) -> Direction:
    return "inverse" if direction == "forward" else "forward"


def _ordered(pack: Pack, direction: Direction) -> Sequence[RuleStage | UseStage]:
    return pack.stages if direction == "forward" else tuple(reversed(pack.stages))


def _accepts(
    pack: Pack, direction: Direction, keys: KeySet, given: Given, with_: Mapping[str, str]
) -> KeySet | None:
    """The keys after the pack where it owns all of them at each stage, else None. Names only."""
    values = resolve(pack, keys, given, with_)
    for stage in _ordered(pack, direction):
        if isinstance(stage, UseStage):
            after = _accepts(stage.pack, direction, keys, given, stage.given)
            if after is None:
                return None
            keys = after
            continue
        bounds = bind(rules_for(stage, direction), values.values, pack.params, pack.file)
        outcome = apply(bounds, keys, None)
        if outcome.unowned or outcome.conflicts or outcome.unbound or outcome.faults:
            return None
        keys = KeySet(k for k in outcome.outputs if k is not None)
    return keys


def _prove(
    pack: Pack, stage: RuleStage, direction: Direction, values: Resolved, outcome: Outcome, after: KeySet
) -> None:
    """Undo the stage on the keys that it made. Raises PlanError for those that don't come back."""
    bounds = bind(rules_for(stage, _other(direction)), values.values, pack.params, pack.file)
    back = apply(bounds, after, None)
    lines: list[str] = []
    places = [p for p, key in enumerate(outcome.outputs) if key is not None]
    keys = outcome.keys.keys
    for n, p in enumerate(places):
        if back.outputs[n] == keys[p]:
            continue
        rule, undone = outcome.rules[p], back.rules[n]
        if rule is None or rule.lossy or rule.only is not None:
            continue
        if undone is not None and undone.does == "refuse" and undone.id == rule.id:
            continue
        lines.append(f"{keys[p]} -> {after.keys[n]} -> {_found(back, n)}: {pack.place(rule)}")
    if lines:
        raise PlanError(
            "keys that the inverse does not bring back",
            where=pack.name,
            problems=lines,
            remedy="narrow the rule, or say inverse: none with because:",
        )


def _found(back: Outcome, place: int) -> str:
    found = back.outputs[place]
    if found is not None:
        return found
    rules: tuple[Rule, ...] = next((r for p, r in back.conflicts if p == place), ())
    return f"owned by {' and '.join(r.id for r in rules)}" if rules else "owned by no rule"
