"""A list of keys, grouped by what is left of them when the numbers are taken out.

A checkpoint of a million keys has a few hundred such skeletons (``layers.#.mlp.w#.weight``). Owners
are decided a skeleton, not a key, and the numbers lie in columns, so that planning costs a few string
operations a key.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from remap.errors import PlanError

Digits = tuple[str, ...]
Column = Sequence[str]

RUN = r"(?<![0-9])(?:0|[1-9][0-9]{0,17})(?![0-9])"
"""A number in a key: a whole run of digits without leading zeros. ``007`` stays text."""

_SPLIT = re.compile(f"({RUN})")
_RUNS = re.compile("([0-9]+)")


@dataclass(frozen=True, slots=True)
class Rows:
    """Keys of one skeleton: their places in the list, and a column for each of their numbers."""

    places: Sequence[int]
    columns: tuple[Column, ...]

    def pick(self, rows: Sequence[int]) -> Rows:
        """Some of them."""
        return Rows([self.places[r] for r in rows], tuple([c[r] for r in rows] for c in self.columns))


@dataclass(frozen=True, slots=True)
class Group:
    """The keys of one skeleton. ``key`` is one of them, ``slots`` where its numbers lie."""

    key: str
    slots: tuple[tuple[int, int], ...]
    rows: Rows


class KeySet:
    """Keys in order, and their groups by skeleton."""

    def __init__(self, keys: Iterable[str], known: Iterable[tuple[str, Rows]] = ()) -> None:
        """``known`` are rows of the list whose skeleton and numbers need not be looked for again. Raises
        PlanError for a key with a zero character, which stands for the numbers here."""
        self.keys = list(keys)
        if strange := [key for key in self.keys if "\0" in key]:
            raise PlanError("keys with a zero character, which no model has", problems=strange)
        found: dict[str, list[Rows]] = {}
        done = bytearray(len(self.keys))
        for skel, rows in known:
            found.setdefault(skel, []).append(rows)
            for place in rows.places:
                done[place] = 1
        self._split(done, found)
        self.groups = {skel: _group(self.keys, several) for skel, several in found.items()}

    def _split(self, done: bytearray, found: dict[str, list[Rows]]) -> None:
        left = [place for place, known in enumerate(done) if not known] if any(done) else range(len(done))
        for skel, rows in _grouped(self.keys, left, _RUNS.split):
            if all(map(_plain, rows.columns)):
                found.setdefault(skel, []).append(rows)
            else:
                for inner, some in _grouped(self.keys, rows.places, _SPLIT.split):
                    found.setdefault(inner, []).append(some)

    def __len__(self) -> int:
        return len(self.keys)


def _grouped(
    keys: Sequence[str], places: Sequence[int], split: Callable[[str], list[str]]
) -> Iterator[tuple[str, Rows]]:
    numbers: dict[str, list[Digits]] = {}
    grouped: dict[str, list[int]] = {}
    for place in places:
        parts = split(keys[place])
        skel = "\0".join(parts[::2])
        if skel not in numbers:
            numbers[skel], grouped[skel] = [], []
        grouped[skel].append(place)
        numbers[skel].append(tuple(parts[1::2]))
    for skel, tuples in numbers.items():
        yield skel, Rows(grouped[skel], tuple(zip(*tuples, strict=True)))


def _plain(column: Column) -> bool:
    """Is every run of digits a number? If not, the slower pattern must say what is."""
    return all((run[0] != "0" or len(run) == 1) and len(run) < 19 for run in set(column))


def _group(keys: list[str], several: list[Rows]) -> Group:
    rows = several[0]
    if len(several) > 1:
        columns = zip(*(r.columns for r in several), strict=True)
        rows = Rows(
            [p for r in several for p in r.places],
            tuple([text for column in same for text in column] for same in columns),
        )
    key = keys[rows.places[0]]
    return Group(key, _spans(_SPLIT.split(key)), rows)


def skeleton(key: str) -> str:
    """``key`` with every number replaced by one mark."""
    return "\0".join(_SPLIT.split(key)[::2])


def numbers(text: str) -> tuple[list[str], list[str]]:
    """A text's pieces between its numbers, and its numbers."""
    parts = _SPLIT.split(text)
    return parts[::2], parts[1::2]


def _spans(parts: list[str]) -> tuple[tuple[int, int], ...]:
    spans: list[tuple[int, int]] = []
    at = 0
    for n, part in enumerate(parts):
        if n % 2:
            spans.append((at, at + len(part)))
        at += len(part)
    return tuple(spans)
