"""Pairs -> rules: pairs of the same skeletons are one rule, whose numbers are captures or literals."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from remap.authoring.inference.pairs import MEMBER, Numbers, Pair, Step, apart

NAMES = "ijklmn"


@dataclass(frozen=True, slots=True)
class Proposed:
    """A rule, and the pairs that it was made of."""

    sources: tuple[str, ...]
    targets: tuple[str, ...]
    pairs: tuple[Pair, ...]

    @property
    def steps(self) -> tuple[Step, ...]:
        """The ops, in order."""
        return self.pairs[0].steps

    @property
    def same(self) -> bool:
        """Does it leave everything as it is?"""
        return not (self.steps or self.confirm) and all(
            a == b for p in self.pairs for a, b in zip(p.sources, p.targets, strict=True)
        )

    @property
    def confirm(self) -> str:
        """What the author has to say of it."""
        return self.pairs[0].confirm

    @property
    def proof(self) -> str:
        """content, if all of its pairs have it; else name."""
        return "content" if all(p.proof == "content" for p in self.pairs) else "name"


def generalise(pairs: Iterable[Pair], others: Iterable[str]) -> list[Proposed]:
    """Rules for the pairs. ``others`` are source keys that no rule may match."""
    grouped: dict[tuple[object, ...], list[Pair]] = defaultdict(list)
    taken: dict[str, set[Numbers]] = defaultdict(set)
    for pair in pairs:
        before = tuple(apart(s)[0] for s in pair.first("sources"))
        after = tuple(apart(t)[0] for t in pair.first("targets"))
        grouped[before, after, str(pair.steps), pair.fold, pair.confirm].append(pair)
        for source in pair.sources:
            taken[apart(source)[0]].add(apart(source)[1])
    for key in others:
        taken[apart(key)[0]].add(apart(key)[1])
    return _together([rule for group in grouped.values() for rule in _rules(group, taken)])


def _together(rules: Iterable[Proposed]) -> list[Proposed]:
    """Rules that differ in a last segment only, which they don't change, as one: weight and bias."""
    grouped: dict[tuple[object, ...], list[tuple[str, Proposed]]] = {}
    for rule in rules:
        ends = {t.rpartition(".")[2] for t in (*rule.sources, *rule.targets)}
        last = ends.pop() if len(ends) == 1 else ""
        plain = last.isidentifier() and all("." in t for t in (*rule.sources, *rule.targets))
        stems = tuple(t.rpartition(".")[0] for t in (*rule.sources, *rule.targets)) if plain else (id(rule),)
        key = (stems, len(rule.sources), str(rule.steps), rule.confirm)
        grouped.setdefault(key, []).append((last, rule))
    return [_merged(several) for several in grouped.values()]


def _merged(several: list[tuple[str, Proposed]]) -> Proposed:
    if len(several) == 1:
        return several[0][1]
    first = several[0][1]
    names = "|".join(sorted(last for last, _ in several))
    return Proposed(
        tuple(f"{t.rpartition('.')[0]}.{{p:{names}}}" for t in first.sources),
        tuple(f"{t.rpartition('.')[0]}.{{p}}" for t in first.targets),
        tuple(pair for _, rule in several for pair in rule.pairs),
    )


def _rules(group: list[Pair], taken: dict[str, set[Numbers]]) -> Iterator[Proposed]:
    """One rule where the numbers follow one pattern, else one for each value of the slot that breaks it."""
    rule = _rule(group, taken)
    if rule is not None:
        yield rule
        return
    first = [apart(p.sources[0])[1] for p in group]
    slots = sorted(range(len(first[0])), key=lambda s: len({n[s] for n in first}))
    slot = next((s for s in slots if len({n[s] for n in first}) > 1), None)
    if slot is None:
        for pair in group:
            yield Proposed(pair.sources, pair.targets, (pair,))
        return
    values: dict[int, list[Pair]] = defaultdict(list)
    for pair, numbers in zip(group, first, strict=True):
        values[numbers[slot]].append(pair)
    for part in values.values():
        yield from _rules(part, taken)


def _rule(group: list[Pair], taken: dict[str, set[Numbers]]) -> Proposed | None:
    """The rule that makes exactly these pairs; None where their numbers follow no pattern."""
    lead = [apart(p.sources[0])[1] for p in group]
    free = _captures(group[0], lead, taken)
    if len(free) > len(NAMES):
        return None
    names = {slot: NAMES[n] for n, slot in enumerate(free)}
    sources = _templates(group, "sources", lead, names)
    targets = _templates(group, "targets", lead, names)
    if sources is None or targets is None:
        return None
    if any(f"{{{name}" not in text for text in targets for name in names.values()):
        return None
    return Proposed(sources, targets, tuple(group))


def _templates(
    group: list[Pair], side: Literal["sources", "targets"], lead: Sequence[Numbers], names: dict[int, str]
) -> tuple[str, ...] | None:
    """The templates of a side, whose numbers follow from those of the first sources."""
    texts: list[str] = []
    for part, key in enumerate(group[0].first(side)):
        numbers = [apart(p.first(side)[part])[1] for p in group]
        slots = [_expression([n[s] for n in numbers], lead, names) for s in range(len(numbers[0]))]
        fold = group[0].fold
        if fold is not None and fold.side == side:
            slots[fold.slot] = f"{{{MEMBER}:int}}"
        known = [s for s in slots if s is not None]
        if len(known) < len(slots):
            return None
        texts.append(_template(key, known, typed=side == "sources"))
    return tuple(texts)


def _captures(pair: Pair, lead: Sequence[Numbers], taken: dict[str, set[Numbers]]) -> list[int]:
    """Slots of the first source that vary, and those that don't but would be captured without harm."""
    count = len(lead[0])
    free = [s for s in range(count) if len({n[s] for n in lead}) > 1]
    mine = set(lead)
    for slot in (s for s in range(count) if s not in free):
        trial = {*free, slot}
        kept = [s for s in range(count) if s not in trial]
        same = {n for n in taken[apart(pair.sources[0])[0]] if all(n[s] == lead[0][s] for s in kept)}
        if same == mine and len(lead) == 1 and lead[0][slot] == 0 and len(pair.sources) == 1:
            free.append(slot)
    return sorted(free)


def _expression(column: list[int], lead: Sequence[Numbers], names: dict[int, str]) -> str | None:
    """How a number follows from the captures: ``{i}``, ``{i+2}``, or a literal."""
    for slot, name in names.items():
        shifts = {v - n[slot] for v, n in zip(column, lead, strict=True)}
        if len(shifts) == 1:
            (shift,) = shifts
            return f"{{{name}}}" if shift == 0 else f"{{{name}{shift:+d}}}"
    return str(column[0]) if len(set(column)) == 1 else None


def _template(key: str, slots: list[str], *, typed: bool) -> str:
    segments = apart(key)[0].split(".")
    places = [n for n, s in enumerate(segments) if s == "#"]
    for place, text in zip(places, slots, strict=True):
        plain = typed and text.startswith("{") and not set(text) & set("+-:")
        segments[place] = text.replace("}", ":int}") if plain else text
    return ".".join(segments)
