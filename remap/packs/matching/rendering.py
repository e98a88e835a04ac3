"""A bound template and a hit -> the keys that it writes, for any keys of the skeleton.

Where numbers only move, or are counted up, the new keys' skeleton and numbers are known without looking
at them; ``Written`` says so, and the next stage need not take them apart.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Union

from remap.errors import PlanError
from remap.ops import arithmetic
from remap.packs.language.template import Capture, Index, Template, Text
from remap.packs.matching.keyset import Column, Rows, numbers
from remap.packs.matching.matcher import Hit
from remap.packs.matching.readings import Reading, single, text, together

LARGEST = 10**18
"""What an index must be less than, so that it is a number where it is read."""

Part = Union[str, Reading[str]]


@dataclass(frozen=True, slots=True)
class Written:
    """New keys; and their skeleton with its columns of numbers, where these are known."""

    keys: list[str]
    skeleton: str | None
    columns: tuple[Column, ...]


def parts(template: Template, hit: Hit) -> list[Part]:
    """What a key is made of: literals and readings, by turns."""
    found: list[Part] = []
    for e in template.elements:
        if isinstance(e, Text):
            found.append(e.text)
        elif isinstance(e, Index):
            found.append(_index(e, hit))
        elif isinstance(e, Capture) and e.name is not None:
            found.extend(_capture(e, hit))
    return _merged(found)


def write(template: Template, hit: Hit, rows: Rows) -> Written:
    """The keys that the template writes for ``rows``. Raises PlanError where an index is less than 0."""
    made = parts(template, hit)
    shape = "".join(p.replace("%", "%%") if isinstance(p, str) else "%s" for p in made)
    columns = [p.column(rows) for p in made if not isinstance(p, str)]
    if not columns:
        return Written([shape % ()] * len(rows.places), None, ())
    keys = [shape % several for several in zip(*columns, strict=True)]
    return Written(keys, *_known(made, columns, len(keys)))


def write_one(template: Template, captures: Mapping[str, str]) -> str:
    """The key that the template writes for these captures."""
    hit = Hit((), {name: (value,) for name, value in captures.items()}, {})
    return write(template, hit, Rows([0], ())).keys[0]


def _merged(found: list[Part]) -> list[Part]:
    done: list[Part] = []
    for part in found:
        if isinstance(part, str) and done and isinstance(done[-1], str):
            done[-1] += part
        else:
            done.append(part)
    return done


def _capture(e: Capture, hit: Hit) -> list[Part]:
    name = e.name or ""
    if name not in hit.texts:
        return [replace(hit.reading(name), counts=True)]
    pieces = hit.texts[name]
    if e.table:
        table = dict(e.table)
        found = text(pieces)
        return [found.then(table.__getitem__) if found.slots else table[found.of(())]]
    return [p if isinstance(p, str) else text((p,)) for p in pieces]


def _index(e: Index, hit: Hit) -> Reading[str]:
    names = sorted(arithmetic.names(e.tree))
    if len(names) == 1 and (memo := hit.number(names[0]).memo) is not None:
        return single(hit.number(names[0]).slots[0], memo.then(_value(e.tree, names[0])), counts=True)

    def value(found: list[int]) -> str:
        return _written(e.tree, dict(zip(names, found, strict=True)))

    return replace(together([hit.number(n) for n in names]).then(value), counts=True)


@lru_cache(maxsize=1000)
def _value(tree: arithmetic.Arithmetic, name: str) -> Callable[[int], str]:
    """The number that ``tree`` is, by the number that ``name`` is. One function for equal trees."""
    return lambda number: _written(tree, {name: number})


def _written(tree: arithmetic.Arithmetic, values: Mapping[str, int]) -> str:
    result = arithmetic.evaluate(tree, values)
    if not 0 <= result < LARGEST:
        raise PlanError(f"{tree} is {result} for {dict(values)}")
    return str(result)


def _known(
    made: Sequence[Part], columns: list[list[str]], count: int
) -> tuple[str | None, tuple[Column, ...]]:
    """Skeleton and numbers of the new keys, where each reading is a number that stands by itself."""
    literals: list[str] = [""]
    found: list[Column] = []
    waiting = iter(columns)
    after_reading = False
    for part in made:
        if not isinstance(part, str):
            column = next(waiting)
            if after_reading or literals[-1][-1:].isdigit() or not part.counts:
                return None, ()
            found.append(column)
            literals.append("")
            after_reading = True
            continue
        if after_reading and part[0].isdigit():
            return None, ()
        pieces, digits = numbers(part)
        literals[-1] += pieces[0]
        literals += pieces[1:]
        found += [[run] * count for run in digits]
        after_reading = False
    return "\0".join(literals), tuple(found)
