"""A bound template -> what it says of a key, or of all keys of one skeleton at once.

A ``Matcher`` looks at one representative key with numbers let loose and answers with a ``Hit``: where
each capture's text lies in terms of the key's numbers, and what must hold of these numbers. From a hit
follow the captures (``texts``, ``numbers``) for any key of the skeleton without matching again. Where
the numbers could move the captures' borders the answer is ``EACH``: look at every key by itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

from remap.ops import arithmetic
from remap.packs.language.template import Capture, Element, Index, Template, Text
from remap.packs.matching.keyset import RUN
from remap.packs.matching.readings import Pieces, Reading, text, together

Check = Reading[bool]
EACH: Literal["each"] = "each"
_DIGITS = re.compile(r"([0-9]+)")


@dataclass(frozen=True, slots=True)
class Hit:
    """How a template lies on the keys of a skeleton.

    checks   what must hold of the numbers; empty where all keys of the skeleton match
    texts    capture -> its text
    numbers  captures that were worked out from arithmetic
    """

    checks: tuple[Check, ...]
    texts: Mapping[str, Pieces]
    numbers: Mapping[str, Reading[int | None]]

    def reading(self, name: str) -> Reading[str]:
        """The capture's text."""
        if name in self.texts:
            return text(self.texts[name])
        return self.numbers[name].then(str, shared=True)

    def number(self, name: str) -> Reading[int]:
        """The int capture's value."""
        if name in self.texts:
            return text(self.texts[name]).then(int, shared=True)
        return self.numbers[name].then(_there, shared=True)

    def captures(self) -> dict[str, str]:
        """All captures of a hit that is of one key."""
        return {name: self.reading(name).at(()) for name in (*self.texts, *self.numbers)}


def _there(number: int | None) -> int:
    assert number is not None
    return number


def _is_there(number: int | None) -> bool:
    return number is not None


@lru_cache(maxsize=1000)
def _solved(tree: arithmetic.Arithmetic, name: str) -> Callable[[int], int | None]:
    """What ``name`` is, by the number that ``tree`` is. One function for equal trees."""
    solve = arithmetic.solver([tree], name)
    assert solve is not None  # a template that can't be solved has no numbers
    return lambda number: solve([number])


def trouble(template: Template) -> str | None:
    """Why the template's arithmetic can't be solved, whatever numbers the parameters are; else None."""
    solved = [e for e in template.elements if not isinstance(e, Index) or e.captures]
    params = {n for e in solved if isinstance(e, Index) for n in e.params}
    return _solvers(replace(template, elements=tuple(solved)).bind(dict.fromkeys(params, 7)).elements)[1]


class _Splits(Exception):
    """A capture ends inside a number."""


class Matcher:
    """Matches one template whose parameters are bound."""

    def __init__(self, template: Template) -> None:
        self.template = template
        self.elements = template.elements
        self._strict = re.compile(_pattern(self.elements, loose=False))
        self._loose = re.compile(_pattern(self.elements, loose=True))
        self._movable = _movable(self.elements)
        self._solvers, self.trouble = _solvers(self.elements)

    def look(self, key: str, slots: tuple[tuple[int, int], ...]) -> Hit | Literal["each"] | None:
        """What the template says of the skeleton that ``key`` represents."""
        found = self._loose.fullmatch(key)
        if found is None:
            return None
        if self._movable:
            return EACH
        try:
            return self._hit(found, slots, loose=True)
        except _Splits:
            return EACH

    def could(self, key: str) -> bool:
        """Could the template match a key of this skeleton?"""
        return self._loose.fullmatch(key) is not None

    def match(self, key: str) -> Hit | None:
        """What the template says of one key: a hit without numbers and without checks."""
        found = self._strict.fullmatch(key)
        return None if found is None else self._hit(found, (), loose=False)

    def _hit(self, found: re.Match[str], slots: tuple[tuple[int, int], ...], *, loose: bool) -> Hit | None:
        checks: list[Check] = []
        texts: dict[str, Pieces] = {}
        indexed: list[tuple[Index, Pieces]] = []
        group = 0
        for e in self.elements:
            if isinstance(e, Text):
                for run in _DIGITS.findall(e.text) if loose else ():
                    group += 1
                    checks.append(_equals(_pieces(found, group, slots), run))
                continue
            group += 1
            pieces = _pieces(found, group, slots)
            if isinstance(e, Index):
                indexed.append((e, pieces))
            elif isinstance(e, Capture):
                if e.table and loose and any(_DIGITS.search(left) for left, _ in e.table):
                    checks.append(_one_of(pieces, frozenset(left for left, _ in e.table)))
                if e.name is not None and e.name in texts:
                    checks.append(_same(pieces, texts[e.name]))
                elif e.name is not None:
                    texts[e.name] = pieces
        numbers = self._solve(indexed, texts, checks)
        return _settled(Hit(tuple(checks), texts, numbers), slots)

    def _solve(
        self, indexed: list[tuple[Index, Pieces]], texts: Mapping[str, Pieces], checks: list[Check]
    ) -> dict[str, Reading[int | None]]:
        numbers: dict[str, Reading[int | None]] = {}
        for name, solve in self._solvers.items():
            of_name = [(e.tree, p) for e, p in indexed if arithmetic.names(e.tree) == {name}]
            mine = [(tree, text(p).then(int, shared=True)) for tree, p in of_name]
            if len(mine) == 1:
                numbers[name] = mine[0][1].then(_solved(mine[0][0], name), shared=True)
            else:
                numbers[name] = together([value for _, value in mine]).then(solve)
            checks.append(numbers[name].then(_is_there, shared=True))
        for e, pieces in indexed:
            needed = sorted(arithmetic.names(e.tree))
            if needed and all(n in texts for n in needed):
                values = [text(p).then(int) for p in (pieces, *(texts[n] for n in needed))]
                checks.append(together(values).then(_agrees(e.tree, needed)))
        return numbers


def _settled(hit: Hit, slots: tuple[tuple[int, int], ...]) -> Hit | None:
    """Checks that don't depend on numbers are made at once where the key has none."""
    if slots or not hit.checks:
        return hit
    return Hit((), hit.texts, hit.numbers) if all(c.at(()) for c in hit.checks) else None


def _agrees(tree: arithmetic.Arithmetic, needed: list[str]) -> Callable[[list[int]], bool]:
    def check(values: list[int]) -> bool:
        return arithmetic.evaluate(tree, dict(zip(needed, values[1:], strict=True))) == values[0]

    return check


def _pattern(elements: tuple[Element, ...], *, loose: bool) -> str:
    parts: list[str] = []
    for e in elements:
        if isinstance(e, Text):
            parts.append(_loosened(e.text, "([0-9]+)") if loose else re.escape(e.text))
        elif isinstance(e, Capture) and e.kind == "names":
            lefts = dict.fromkeys(_loosened(n, "[0-9]+") if loose else re.escape(n) for n, _ in e.table)
            parts.append(f"({'|'.join(lefts)})")
        elif isinstance(e, Capture) and e.kind == "path":
            parts.append(r"([^.]+(?:\.[^.]+)*?)")
        elif isinstance(e, Capture) and e.kind == "segment":
            parts.append(r"([^.]+?)")
        elif isinstance(e, (Capture, Index)):
            parts.append(f"({RUN})")
        else:
            parts.append(r"((?!))")
    return "".join(parts)


def _loosened(literal: str, digits: str) -> str:
    return "".join(digits if n % 2 else re.escape(part) for n, part in enumerate(_DIGITS.split(literal)))


def _movable(elements: tuple[Element, ...]) -> bool:
    """Could other numbers move the borders of a capture?"""
    if not any(_counts(e) for e in elements) and not _repeats(elements):
        return False
    if sum(isinstance(e, Capture) and e.dotted for e in elements) > 1:
        return True
    segment: list[tuple[bool, bool]] = []
    for e in elements:
        if not isinstance(e, Text):
            segment.append((_counts(e), isinstance(e, Capture) and e.kind != "int"))
            continue
        pieces = e.text.split(".")
        for n, piece in enumerate(pieces):
            if n and _tangled(segment):
                return True
            segment = [] if n else segment
            if piece:
                segment.append((bool(_DIGITS.search(piece)), False))
    return _tangled(segment)


def _tangled(segment: list[tuple[bool, bool]]) -> bool:
    return len(segment) > 1 and any(counts for counts, _ in segment) and any(free for _, free in segment)


def _counts(e: Element) -> bool:
    """Does it depend on what the numbers are?"""
    if isinstance(e, Text):
        return bool(_DIGITS.search(e.text))
    if isinstance(e, Capture):
        return any(_DIGITS.search(left) for left, _ in e.table)
    return isinstance(e, Index)


def _repeats(elements: tuple[Element, ...]) -> bool:
    named = [e.name for e in elements if isinstance(e, Capture) and e.name is not None]
    return len(named) != len(set(named))


def _solvers(
    elements: tuple[Element, ...],
) -> tuple[dict[str, Callable[[list[int]], int | None]], str | None]:
    """How to get each index back that is not captured by itself; and why one can't be."""
    captured = {e.name for e in elements if isinstance(e, Capture)}
    trees: dict[str, list[arithmetic.Arithmetic]] = {}
    for e in elements:
        if isinstance(e, Index):
            left = sorted(arithmetic.names(e.tree) - captured)
            if len(arithmetic.names(e.tree)) > 1 and left:
                return {}, f"{e.tree} can't be solved for {' and '.join(left)}"
            for name in left:
                trees.setdefault(name, []).append(e.tree)
    solvers: dict[str, Callable[[list[int]], int | None]] = {}
    for name, several in trees.items():
        solve = arithmetic.solver(several, name)
        if solve is None:
            return {}, f"{' and '.join(map(str, several))} can't be solved for {name}"
        solvers[name] = solve
    return solvers, None


def _pieces(found: re.Match[str], group: int, slots: tuple[tuple[int, int], ...]) -> Pieces:
    start, end = found.span(group)
    key = found.string
    pieces: list[str | int] = []
    at = start
    for n, (a, b) in enumerate(slots):
        if b <= start or a >= end:
            continue
        if a < start or b > end:
            raise _Splits
        if a > at:
            pieces.append(key[at:a])
        pieces.append(n)
        at = b
    if at < end:
        pieces.append(key[at:end])
    return tuple(pieces)


def _equals(pieces: Pieces, wanted: str) -> Check:
    return text(pieces).then(lambda found: found == wanted)


def _one_of(pieces: Pieces, texts: frozenset[str]) -> Check:
    return text(pieces).then(lambda found: found in texts)


def _same(one: Pieces, other: Pieces) -> Check:
    return together([text(one), text(other)]).then(lambda found: found[0] == found[1])
