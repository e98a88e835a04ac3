"""One stage: a frozen set of keys and the rules for one direction -> what becomes of every key.

Rules are applied at once: each key is looked at under its old name only, so swaps work. Everything
that is wrong is collected in the outcome; ``compose`` decides what to raise.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from remap.errors import PlanError
from remap.packs.language.pack import Rule
from remap.packs.language.template import Capture, Template, Text
from remap.packs.matching.keyset import KeySet, Rows, skeleton
from remap.packs.matching.matcher import Matcher
from remap.packs.matching.owners import Bound, Claim, Conflict, owners
from remap.packs.matching.rendering import write, write_one


@dataclass(frozen=True, slots=True)
class Claimed:
    """A key that a rule with ops owns: its source number and its captures."""

    place: int
    bound: Bound
    part: int
    captures: dict[str, str]


@dataclass
class Outcome:
    """What a stage does to each key, by place in ``keys``.

    outputs    the new key; None where it is dropped, transformed with others, or wrong
    rules      its owner; None where it has none
    known      skeletons and numbers of outputs, where they need not be looked for
    claimed    keys of rules with ops
    fired      rule -> how many keys it owns
    twice      places of keys that a rule both matches and could have produced
    conflicts  places of keys with several owners, and these
    refused    places of keys that a rule without an inverse would have to bring back
    unbound    rule -> parameters that it needs and that have no value
    faults     what went wrong in a key's arithmetic
    """

    keys: KeySet
    outputs: list[str | None]
    rules: list[Rule | None]
    known: list[tuple[str, Rows]] = field(default_factory=list)
    claimed: list[Claimed] = field(default_factory=list)
    fired: Counter[str] = field(default_factory=Counter)
    twice: list[tuple[int, Rule]] = field(default_factory=list)
    conflicts: list[tuple[int, tuple[Rule, ...]]] = field(default_factory=list)
    refused: list[tuple[int, Rule]] = field(default_factory=list)
    unbound: dict[str, frozenset[str]] = field(default_factory=dict)
    faults: list[tuple[int, Rule, str]] = field(default_factory=list)

    @property
    def unowned(self) -> list[int]:
        """Places of keys that nobody owns."""
        bad = {place for place, _ in self.conflicts}
        return [n for n, rule in enumerate(self.rules) if rule is None and n not in bad]


def apply(bounds: Sequence[Bound], keys: KeySet, again: frozenset[str] | None) -> Outcome:
    """Apply the rules. ``again`` names those that may be applied twice; None: don't look for it."""
    out = Outcome(keys, [None] * len(keys), [None] * len(keys))
    for skel, group in keys.groups.items():
        for verdict, rows in owners(bounds, group, keys.keys):
            if isinstance(verdict, Conflict):
                out.conflicts.extend((p, verdict.rules) for p in rows.places)
            elif verdict is not None:
                _claim(out, verdict, skel, rows, again)
    return out


def _claim(out: Outcome, claim: Claim, skel: str, rows: Rows, again: frozenset[str] | None) -> None:
    rule = claim.bound.rule
    out.fired[rule.id] += len(rows.places)
    for p in rows.places:
        out.rules[p] = rule
    if rule.does == "keep":
        for p in rows.places:
            out.outputs[p] = out.keys.keys[p]
        out.known.append((skel, rows))
    elif rule.does == "refuse":
        out.refused.extend((p, rule) for p in rows.places)
    elif rule.does == "rename" and claim.bound.unbound:
        out.unbound[rule.id] = claim.bound.unbound
    elif rule.does == "rename" and rule.ops:
        names = sorted(claim.hit.texts.keys() | claim.hit.numbers.keys())
        columns = [claim.hit.reading(n).column(rows) for n in names]
        for row, p in enumerate(rows.places):
            captures = {n: column[row] for n, column in zip(names, columns, strict=True)}
            out.claimed.append(Claimed(p, claim.bound, claim.part, captures))
    elif rule.does == "rename":
        _rename(out, claim, rows)
        if again is not None and rule.id not in again:
            out.twice.extend((p, rule) for p in _applied_already(claim, rows.places, out.keys))


def _rename(out: Outcome, claim: Claim, rows: Rows) -> None:
    try:
        written = write(claim.bound.targets[0], claim.hit, rows)
    except PlanError as e:
        if len(rows.places) == 1:
            out.faults.append((rows.places[0], claim.bound.rule, e.what))
            return
        for row in range(len(rows.places)):
            _rename(out, claim, rows.pick([row]))
        return
    for p, key in zip(rows.places, written.keys, strict=True):
        out.outputs[p] = key
    if written.skeleton is not None:
        out.known.append((written.skeleton, Rows(rows.places, written.columns)))


def _applied_already(claim: Claim, places: Sequence[int], keys: KeySet) -> list[int]:
    """Keys that the rule could have made from a shorter one: applying it would wrap them again.

    An index shift and a swap leave the length of the skeleton as it is; taking a wrapper off makes
    the key before longer. Only a rule that lengthens can be applied twice by mistake.
    """
    source, target = claim.bound.rule.sources[0], claim.bound.targets[0]
    matcher = claim.bound.matchers[0]
    if (
        not isinstance(source, Template)
        or not isinstance(matcher, Matcher)
        or not _lengthens(matcher.template, target)
    ):
        return []
    makes = Matcher(target.flipped())
    if makes.trouble is not None:
        return []
    before = matcher.template.flipped()
    if not makes.could(keys.keys[places[0]]):
        return []
    return [p for p in places if _wraps(makes, before, keys.keys[p])]


def _wraps(makes: Matcher, before: Template, key: str) -> bool:
    hit = makes.match(key)
    return hit is not None and len(skeleton(write_one(before, hit.captures()))) < len(skeleton(key))


def _lengthens(source: Template, target: Template) -> bool:
    """Can what ``target`` writes be longer than what ``source`` reads?"""
    if any(isinstance(e, Capture) and e.table for e in (*source.elements, *target.elements)):
        return True
    return _length(target) > _length(source)


def _length(template: Template) -> int:
    holes = sum(not isinstance(e, Text) for e in template.elements)
    return holes + sum(len(skeleton(e.text)) for e in template.elements if isinstance(e, Text))
