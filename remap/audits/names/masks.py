"""Texts with every digit as 0: those that differ in digits only have one mask, their numbers at one place.

A checkpoint of tens of thousands of keys has a few dozen masks. All are made at once, in one string.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

_IN_WORD = re.compile(r"[^.0-9][0-9]|[0-9][^.0-9]")
_ZEROS = str.maketrans("123456789", "000000000")
_BETWEEN = "\0"


def masked(texts: Sequence[str]) -> list[str]:
    """The mask of each text."""
    masks = _BETWEEN.join(texts).translate(_ZEROS).split(_BETWEEN)
    return masks if len(masks) == len(texts) else [t.translate(_ZEROS) for t in texts]


def alike(keys: Iterable[str]) -> list[list[str]]:
    """The keys, those of one mask together, in the order of their first."""
    listed = list(keys)
    found: dict[str, list[str]] = {}
    for mask, key in zip(masked(listed), listed, strict=True):
        if mask in found:
            found[mask].append(key)
        else:
            found[mask] = [key]
    return list(found.values())


def one_of_each(keys: Iterable[str]) -> list[str]:
    """One key of all that differ in numbered segments only: ``w1`` and ``w3`` are two names."""
    found: dict[str, str] = {}
    for several in alike(keys):
        for key in several if _IN_WORD.search(several[0]) else several[:1]:
            found.setdefault(".".join("#" if s.isdigit() else s for s in key.split(".")), key)
    return list(found.values())
