"""A bound template and a hit -> the key that it writes, for any key of the skeleton.

A renderer is compiled once a skeleton and then called with the numbers of each key; where they only
move, it is one string format.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from remap.errors import PlanError
from remap.ops import arithmetic
from remap.packs.keyset import Digits
from remap.packs.matching import Hit, Pieces, read
from remap.packs.template import Capture, Index, Template, Text

Renderer = Callable[[Digits], str]
_Part = "str | int | Callable[[Digits], str]"


def renderer(template: Template, hit: Hit) -> Renderer:
    """What writes ``template``'s key. The rule's reader has checked that every capture is there."""
    parts: list[str | int | Callable[[Digits], str]] = []
    for e in template.elements:
        if isinstance(e, Text):
            parts.append(e.text)
        elif isinstance(e, Index):
            parts.append(_index(e, hit))
        elif isinstance(e, Capture) and e.name is not None:
            parts.extend(_capture(e, hit))
    return _formatted(parts)


def number(name: str, hit: Hit) -> Callable[[Digits], int]:
    """What gives an int capture's value."""
    if name in hit.texts:
        pieces = hit.texts[name]
        if len(pieces) == 1 and isinstance(pieces[0], int):
            slot = pieces[0]
            return lambda digits: int(digits[slot])
        return lambda digits: int(read(pieces, digits))
    solved = hit.numbers[name]
    return lambda digits: solved(digits) or 0


def _capture(e: Capture, hit: Hit) -> list[str | int | Callable[[Digits], str]]:
    name = e.name or ""
    if name in hit.numbers:
        solved = number(name, hit)
        return [lambda digits: str(solved(digits))]
    pieces = hit.texts[name]
    if not e.table:
        return list(pieces)
    table = dict(e.table)
    if all(isinstance(p, str) for p in pieces):
        return [table[read(pieces, ())]]
    return [_looked_up(table, pieces)]


def _looked_up(table: Mapping[str, str], pieces: Pieces) -> Callable[[Digits], str]:
    return lambda digits: table[read(pieces, digits)]


def _index(e: Index, hit: Hit) -> Callable[[Digits], str]:
    getters = {name: number(name, hit) for name in sorted(arithmetic.names(e.tree))}
    known: dict[tuple[int, ...], str] = {}

    def text(digits: Digits) -> str:
        values = {name: get(digits) for name, get in getters.items()}
        found = tuple(values.values())
        if found not in known:
            result = arithmetic.evaluate(e.tree, values)
            if result < 0:
                raise PlanError(f"{e.tree} is {result} for {values}")
            known[found] = str(result)
        return known[found]

    return text


def _formatted(parts: list[str | int | Callable[[Digits], str]]) -> Renderer:
    calls = [(n, p) for n, p in enumerate(parts) if callable(p)]
    literal = "".join("%s" if not isinstance(p, str) else p.replace("%", "%%") for p in parts)
    if not any(not isinstance(p, str) for p in parts):
        fixed = literal % ()
        return lambda digits: fixed
    if not calls:
        slots = [p for p in parts if isinstance(p, int)]
        if len(slots) == 1:
            (slot,) = slots
            return lambda digits: literal % digits[slot]
        return lambda digits: literal % tuple([digits[s] for s in slots])
    holes = [p for p in parts if not isinstance(p, str)]
    return lambda digits: literal % tuple([p(digits) if callable(p) else digits[p] for p in holes])
