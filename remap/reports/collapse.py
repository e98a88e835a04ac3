"""Repeated layers in one line: ``layers.0.x``, ``layers.1.x``, ... become ``layers.{0..23}.x``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

_NUMBER = re.compile(r"(?<![0-9A-Za-z_\[,])(?:0|[1-9][0-9]{0,17})(?![0-9A-Za-z_\],])")
"""Numbers that are whole words; those of a shape, ``f16[8,8]``, are not: other shapes are other lines."""

"""As packs count: with a leading zero, or longer, it is text."""

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
    their first rows."""
    groups: dict[Shape, list[list[list[int]]]] = {}
    firsts: list[int] = []
    for place, row in enumerate(rows):
        numbers = [[int(n) for n in _NUMBER.findall(cell)] for cell in row]
        found = groups.setdefault(tuple(tuple(_NUMBER.split(cell)) for cell in row), [])
        if not found:
            firsts.append(place)
        found.append(numbers)
    return [_line(*group, first) for group, first in zip(groups.items(), firsts, strict=True)]


def _line(shape: Shape, found: list[list[list[int]]], first: int) -> Line:
    cells = []
    for i, texts in enumerate(shape):
        spans = [_span(column) for column in zip(*(numbers[i] for numbers in found), strict=True)]
        cells.append("".join(a + b for a, b in zip(texts, [*spans, ""], strict=True)))
    return Line(tuple(cells), len(found), first)


def _span(numbers: Sequence[int]) -> str:
    distinct = sorted(set(numbers))
    if len(distinct) == 1:
        return str(distinct[0])
    if distinct[-1] - distinct[0] == len(distinct) - 1:
        return f"{{{distinct[0]}..{distinct[-1]}}}"
    if len(distinct) <= 6:
        return f"{{{','.join(map(str, distinct))}}}"
    return f"{{{distinct[0]}..{distinct[-1]}: {len(distinct)} of them}}"
