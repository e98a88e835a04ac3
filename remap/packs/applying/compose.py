"""Packs in order -> stages in order, applied to a table of keys.

Forward, a pack's stages run as written; inverse, in reverse with each rule undone. A used pack resolves
its own parameters on the keys that reach it. After each stage the way back is tried on the real keys.
The table belongs to the caller (``plan``): here only names are known.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from remap.expr import Expr
from remap.packs.applying.added import added
from remap.packs.applying.complaints import collided, collisions, complain, unfired
from remap.packs.applying.gather import Made, gather
from remap.packs.applying.invert import rules_for
from remap.packs.applying.params import Given, Resolved, check_counts, recall, resolve
from remap.packs.applying.proof import prove
from remap.packs.applying.stage import Outcome, apply
from remap.packs.applying.trouble import PASSED, Troubles
from remap.packs.applying.unwrap import NAME, rewrap_rules, unwrap_rules
from remap.packs.language.pack import Direction, Pack, Rule, RuleStage, Stage, UnwrapStage, UseStage
from remap.packs.matching.keyset import KeySet, Rows
from remap.packs.matching.owners import bind


class Table(Protocol):
    """What stages are applied to."""

    @property
    def keys(self) -> KeySet:
        """The keys as they are now."""

    @property
    def exprs(self) -> Sequence[Expr]:
        """What each key's tensor is made of."""

    def advance(self, after: After) -> None:
        """Become what a stage makes of it."""


@dataclass(frozen=True)
class After:
    """What a stage makes of a table: new keys in order, and where each comes from.

    origins  the place of the key before, or the tensor that ops made
    numbers  the pack's parameters that are numbers
    """

    outcome: Outcome
    keys: KeySet
    origins: list[int | Made]
    numbers: Mapping[str, int] = field(default_factory=dict)


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
    troubles   where what doesn't fit is collected, if it is tolerant, instead of raised
    """

    pack: Pack
    direction: Direction
    given: Given
    again: frozenset[str] = frozenset()
    partial: bool = False
    troubles: Troubles = field(default_factory=Troubles)
    applied: list[Applied] = field(default_factory=list)

    def on(self, table: Table) -> list[Applied]:
        """Apply the pack to the table. Raises PlanError."""
        self._input = table.keys
        self._pack(self.pack, self.direction, table, {})
        return self.applied

    def _pack(self, pack: Pack, direction: Direction, table: Table, with_: Mapping[str, str]) -> None:
        values = resolve(pack, table.keys, self.given, with_, lambda place: table.exprs[place].spec)
        run = Applied(pack, direction, values)
        self.applied.append(run)
        if not self.partial:
            self.troubles.attempt(lambda: check_counts(pack, table.keys))
        for stage in _ordered(pack, direction):
            if isinstance(stage, UseStage):
                if values.hold(stage.when):
                    self._pack(stage.pack, _toward(stage, direction), table, {**stage.given, **with_})
            elif isinstance(stage, UnwrapStage):
                self._stage(run, self._unwrap(run, stage, table), table)
            else:
                self._stage(run, stage, table)

    def _unwrap(self, run: Applied, stage: UnwrapStage, table: Table) -> RuleStage:
        """The stage as rules: made for the keys, or for those that the receipt remembers."""
        if run.direction == "forward":
            rules, text = unwrap_rules(stage.wrappers, table.keys, stage.line)
            origin = "found in the keys"
        else:
            text = str(recall(self.given.remembered, run.pack, NAME) or "")
            rules = rewrap_rules(text, stage.line)
            origin = "remembered from the receipt" if text else "nothing is remembered"
        run.values.spelled[NAME], run.values.origins[NAME] = text, origin
        return RuleStage(stage.line, tuple(rules))

    def _stage(self, run: Applied, stage: RuleStage, table: Table) -> None:
        pack, direction, values = run.pack, run.direction, run.values
        rules = _rules(stage, direction, values)
        bounds = bind(rules, values.values, pack.params, pack.file)
        before = table.keys
        outcome = apply(bounds, before, self.again)
        converted = bool(outcome.unowned) and self._converted()
        blamed = self.pack if converted else pack
        known = len(self.troubles.found)
        foreign = len(outcome.unowned) == len(before) > 0
        tolerant = self.troubles.tolerant and not converted and not foreign
        if tolerant:
            self._tolerate(pack, rules, outcome, values)
        complain(
            blamed,
            rules,
            outcome,
            values,
            partial=self.partial or tolerant,
            converted=converted,
            direction=self.direction,
            idle=self._idle(),
        )
        made = gather(pack, outcome, table.exprs, values.numbers, self.troubles) if outcome.claimed else []
        made += added(pack, rules, values, table.exprs)
        after = _after(outcome, made)
        if len(set(after.keys.keys)) != len(after.keys):
            after = self._without_collisions(pack, after)
        specs = {c.place: table.exprs[c.place].spec for c in outcome.claimed}
        table.advance(replace(after, numbers=values.numbers))
        if len(self.troubles.found) > known:
            return  # there is no way back from what did not fit
        undo = bind(_rules(stage, other(direction), values), values.values, pack.params, pack.file)
        self.troubles.attempt(
            lambda: prove(pack, undo, values, outcome, after.origins, table.keys, table.exprs, specs)
        )

    def _idle(self) -> Iterator[Rule]:
        """Rules of the pack that was asked for that drop on condition: their keys need not be refused."""
        for rule in self.pack.all_rules:
            if rule.does == "drop" and rule.when and (rule.only or "forward") == self.direction:
                yield rule

    def _tolerate(self, pack: Pack, rules: Sequence[Rule], outcome: Outcome, values: Resolved) -> None:
        """Collect what a conversion would refuse; keys that no rule owns go on as they are."""
        keys = outcome.keys.keys
        for place in outcome.unowned:
            outcome.outputs[place], outcome.rules[place] = keys[place], PASSED
            self.troubles.add("unowned", keys[place], f"no rule of {pack.name} owns it")
        if not self.partial:
            self.troubles.unfit(unfired(pack, rules, outcome, values))

    def _without_collisions(self, pack: Pack, after: After) -> After:
        """The first of those that want one name has it, where that is tolerated."""
        found = _collided(after)
        if not self.troubles.tolerant:
            raise collisions(pack, found)
        for target, how in collided(pack, found).items():
            self.troubles.add("collision", target, how)
        first = dict(reversed(list(zip(after.keys.keys, after.origins, strict=True))))
        keys = list(dict.fromkeys(after.keys.keys))
        return After(after.outcome, KeySet(keys), [first[k] for k in keys])

    def _converted(self) -> bool:
        """Are the keys that came in what the whole pack produces?"""
        return (
            len(self._input) > 0
            and _accepts(self.pack, other(self.direction), self._input, self.given, {}) is not None
        )


def _rules(stage: RuleStage, direction: Direction, values: Resolved) -> list[Rule]:
    return [r for r in rules_for(stage, direction) if values.hold(r.when)]


def other(direction: Direction) -> Direction:
    """The way back."""
    return "inverse" if direction == "forward" else "forward"


def _toward(stage: UseStage, direction: Direction) -> Direction:
    """The direction of a used pack: one that is used inversely runs forward on the way back."""
    return direction if stage.direction == "forward" else other(direction)


def _ordered(pack: Pack, direction: Direction) -> Sequence[Stage]:
    return pack.stages if direction == "forward" else tuple(reversed(pack.stages))


def _accepts(
    pack: Pack, direction: Direction, keys: KeySet, given: Given, with_: Mapping[str, str]
) -> KeySet | None:
    """The keys after the pack where it owns all of them at each stage, else None. Names only."""
    values = resolve(pack, keys, given, with_)
    for stage in _ordered(pack, direction):
        if isinstance(stage, UseStage):
            if not values.hold(stage.when):
                continue
            after = _accepts(stage.pack, _toward(stage, direction), keys, given, {**stage.given, **with_})
            if after is None:
                return None
            keys = after
            continue
        if isinstance(stage, UnwrapStage):
            continue
        bounds = bind(_rules(stage, direction, values), values.values, pack.params, pack.file)
        outcome = apply(bounds, keys, None)
        if outcome.unowned or outcome.conflicts or outcome.unbound or outcome.faults:
            return None
        keys = KeySet(k for k in outcome.outputs if k is not None)
    return keys


def _after(outcome: Outcome, several: list[Made]) -> After:
    made: dict[int, list[Made]] = {}
    for m in several:
        made.setdefault(m.place, []).append(m)
    keys: list[str] = []
    origins: list[int | Made] = []
    for place, key in enumerate(outcome.outputs):
        if key is not None:
            keys.append(key)
            origins.append(place)
        for m in made.get(place, ()) if made else ():
            keys.append(m.key)
            origins.append(m)
    for m in made.get(len(outcome.outputs), ()):
        keys.append(m.key)
        origins.append(m)
    return After(outcome, KeySet(keys, _moved(outcome, origins)), origins)


def _moved(outcome: Outcome, origins: list[int | Made]) -> Iterator[tuple[str, Rows]]:
    """What is known of the new keys, by their new places."""
    if origins == list(range(len(outcome.outputs))):
        yield from outcome.known
        return
    places = {origin: place for place, origin in enumerate(origins) if isinstance(origin, int)}
    for skel, rows in outcome.known:
        yield skel, Rows([places[p] for p in rows.places], rows.columns)


def _collided(after: After) -> dict[str, list[tuple[str, Rule]]]:
    before, rules = after.outcome.keys.keys, after.outcome.rules
    made: dict[str, list[tuple[str, Rule]]] = {}
    for key, origin in zip(after.keys.keys, after.origins, strict=True):
        place = origin if isinstance(origin, int) else origin.place
        rule = rules[place] if isinstance(origin, int) else origin.rule
        assert rule is not None
        source = before[place] if place < len(before) else "nothing"
        made.setdefault(key, []).append((source, rule))
    return {key: several for key, several in made.items() if len(several) > 1}
