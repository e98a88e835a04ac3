"""Repeated layers in one line: ``layers.0.x``, ``layers.1.x``, ... become ``layers.{0..23}.x``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from remap.audits.names.masks import masked

_NUMBER = re.compile(r"(?<![0-9A-Za-z_\[,])(?:0|[1-9][0-9]{0,17})(?![0-9A-Za-z_\],])")
"""Numbers that are whole words; those of a shape, ``f16[8,8]``, are not: other shapes are other lines. As
packs count: with a leading zero, or longer, it is text."""
_DIGITS = re.compile("[0-9]+")
Shape = tuple[tuple[str, ...], ...]
"""Of each cell of a row, what lies between its numbers."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line: its cells, how many rows it stands for, and the place of the first of them."""

    cells: tuple[str, ...]
    count: int
    first: int = field(default=0, compare=False)


def collapse(rows: Iterable[Sequence[str]]) -> list[Line]:
    """Rows that differ only in numbers that are whole words, as one line each, in the order of
    their first rows. All have as many cells."""
    listed = list(rows)
    groups: dict[Shape, _Group] = {}
    for several in _alike(listed):
        for places in _same_texts(listed, several):
            _gather(groups, listed, places)
    lines = [_line(shape, group) for shape, group in groups.items()]
    return sorted(lines, key=lambda line: line.first)


@dataclass(slots=True)
class _Group:
    """Rows of one shape: how many, the first, and the numbers that stand at each place of each cell."""

    first: int
    numbers: list[list[set[int]]]
    count: int = 0


def _alike(rows: list[Sequence[str]]) -> Iterable[list[int]]:
    """The places of the rows, those together that differ in digits only."""
    found: dict[tuple[str, ...], list[int]] = {}
    for place, mask in enumerate(zip(*(masked(column) for column in zip(*rows, strict=True)), strict=True)):
        found.setdefault(mask, []).append(place)
    return found.values()


def _same_texts(rows: list[Sequence[str]], places: list[int]) -> Iterable[list[int]]:
    """Of rows that differ in digits only, those together that differ in numbers only: a digit inside a word
    is text, and so is a number with a leading zero."""
    words, long = [], []
    for i, cell in enumerate(rows[places[0]]):
        numbers = {m.span() for m in _NUMBER.finditer(cell)}
        runs = {m.span() for m in _DIGITS.finditer(cell)}
        words += [(i, a, b) for a, b in runs - numbers]
        long += [(i, a) for a, b in numbers if b - a > 1]
    if any("0" in {rows[p][i][a] for p in places} for i, a in long):
        return [[p] for p in places]
    if not words:
        return [places]
    found: dict[tuple[str, ...], list[int]] = {}
    for p in places:
        found.setdefault(tuple(rows[p][i][a:b] for i, a, b in words), []).append(p)
    return found.values()


def _gather(groups: dict[Shape, _Group], rows: list[Sequence[str]], places: list[int]) -> None:
    first = rows[places[0]]
    spans = [[m.span() for m in _NUMBER.finditer(cell)] for cell in first]
    shape = tuple(tuple(_NUMBER.split(cell)) for cell in first)
    group = groups.setdefault(shape, _Group(places[0], [[set() for _ in cell] for cell in spans]))
    group.first = min(group.first, places[0])
    group.count += len(places)
    for i, cell in enumerate(spans):
        texts = [rows[p][i] for p in places] if cell else []
        for n, (a, b) in enumerate(cell):
            group.numbers[i][n].update(map(int, {t[a:b] for t in texts}))


def _line(shape: Shape, group: _Group) -> Line:
    cells = []
    for texts, numbers in zip(shape, group.numbers, strict=True):
        spans = [_span(sorted(found)) for found in numbers]
        cells.append("".join(a + b for a, b in zip(texts, [*spans, ""], strict=True)))
    return Line(tuple(cells), group.count, group.first)


def _span(distinct: Sequence[int]) -> str:
    if len(distinct) == 1:
        return str(distinct[0])
    if distinct[-1] - distinct[0] == len(distinct) - 1:
        return f"{{{distinct[0]}..{distinct[-1]}}}"
    if len(distinct) <= 6:
        return f"{{{','.join(map(str, distinct))}}}"
    return f"{{{distinct[0]}..{distinct[-1]}: {len(distinct)} of them}}"
