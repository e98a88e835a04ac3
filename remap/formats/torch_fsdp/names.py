"""Which files are the ranks of one save: those whose names differ in the rank's number only."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

_NUMBER = re.compile(r"\d+")
_RANK = re.compile(r"rank[_-]?(\d+)", re.IGNORECASE)
BESIDE = re.compile(r"(optim|extra_state|scheduler|lr_scheduler|rng|random|training_args)", re.IGNORECASE)
"""Beginnings of names of files that a trainer leaves beside the model's."""


@dataclass(frozen=True, slots=True)
class Numbered:
    """A file name taken apart: what comes before the rank's number, the number, what comes after."""

    before: str
    number: int
    after: str


def numbered(name: str) -> Numbered | None:
    """The number is that after ``rank``, else the last one in the name; None where there is none."""
    stem = name.rpartition(".")[0] or name
    found = [*_RANK.finditer(stem)]
    if found:
        start, stop = found[-1].span(1)
    else:
        numbers = [*_NUMBER.finditer(stem)]
        if not numbers:
            return None
        start, stop = numbers[-1].span()
    return Numbered(name[:start], int(name[start:stop]), name[stop:])


def family(path: Path) -> list[Path]:
    """The files that differ from ``path`` in the rank's number only, by that number."""
    own = numbered(path.name)
    if own is None:
        return [path]
    others = (
        (p, n) for p in path.parent.iterdir() if (n := numbered(p.name)) and _alike(n, own) and p.is_file()
    )
    return [p for p, _ in sorted(others, key=lambda f: (f[1].number, f[0].name))]


def _alike(a: Numbered, b: Numbered) -> bool:
    return (a.before, a.after) == (b.before, b.after)
