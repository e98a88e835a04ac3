"""Keys grouped by what is left of them when the numbers are taken out."""

from __future__ import annotations

from collections.abc import Iterable

from remap.packs.matching.keyset import numbers

Pieces = tuple[str, ...]
Digits = tuple[str, ...]


def group(keys: Iterable[str]) -> dict[Pieces, dict[Digits, str]]:
    """The pieces between the numbers -> the numbers -> the key."""
    found: dict[Pieces, dict[Digits, str]] = {}
    for key in keys:
        pieces, digits = numbers(key)
        found.setdefault(tuple(pieces), {})[tuple(digits)] = key
    return found
