"""A list of keys, grouped by what is left of them when the numbers are taken out.

A checkpoint of a million keys has a few hundred such skeletons (``layers.#.mlp.w#.weight``). Owners
are decided a skeleton, not a key, so that planning costs a few string operations a key.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

Digits = tuple[str, ...]

RUN = r"(?<![0-9])(?:0|[1-9][0-9]{0,17})(?![0-9])"
"""A number in a key: a whole run of digits without leading zeros. ``007`` stays text."""

_SPLIT = re.compile(f"({RUN})")


@dataclass(slots=True)
class Group:
    """The keys of one skeleton: their places in the list, and the numbers of each."""

    key: str
    slots: tuple[tuple[int, int], ...]
    places: list[int] = field(default_factory=list)
    digits: list[Digits] = field(default_factory=list)


class KeySet:
    """Keys in order, and their groups by skeleton."""

    def __init__(self, keys: Iterable[str]) -> None:
        self.keys = list(keys)
        self.groups: dict[str, Group] = {}
        split = _SPLIT.split
        for place, key in enumerate(self.keys):
            parts = split(key)
            skeleton = "\0".join(parts[::2])
            group = self.groups.get(skeleton)
            if group is None:
                group = self.groups[skeleton] = Group(key, _spans(parts))
            group.places.append(place)
            group.digits.append(tuple(parts[1::2]))

    def __len__(self) -> int:
        return len(self.keys)


def skeleton(key: str) -> str:
    """``key`` with every number replaced by one mark."""
    return "\0".join(_SPLIT.split(key)[::2])


def _spans(parts: list[str]) -> tuple[tuple[int, int], ...]:
    spans: list[tuple[int, int]] = []
    at = 0
    for n, part in enumerate(parts):
        if n % 2:
            spans.append((at, at + len(part)))
        at += len(part)
    return tuple(spans)
