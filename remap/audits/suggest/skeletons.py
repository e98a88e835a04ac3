"""Keys grouped by what is left of them when the numbers are taken out."""

from __future__ import annotations

import re
from collections.abc import Iterable

from remap.audits.names.masks import alike
from remap.packs.matching.keyset import numbers

Pieces = tuple[str, ...]
Digits = tuple[str, ...]
Spans = list[tuple[int, int]]
_RUN = re.compile("[0-9]+")
LONGEST = 18
"""Digits of a number; longer is text."""


def group(keys: Iterable[str]) -> dict[Pieces, dict[Digits, str]]:
    """The pieces between the numbers -> the numbers -> the key."""
    found: dict[Pieces, dict[Digits, str]] = {}
    for several in alike(keys):
        spans = number_spans(several[0])
        if spans and all(is_plain(k, spans) for k in several):
            pieces, _ = numbers(several[0])
            found.setdefault(tuple(pieces), {}).update({tuple(k[a:b] for a, b in spans): k for k in several})
            continue
        for key in several:
            pieces, digits = numbers(key)
            found.setdefault(tuple(pieces), {})[tuple(digits)] = key
    return found


def number_spans(text: str) -> Spans:
    """Where its runs of digits lie; they are its numbers where they are plain."""
    return [m.span() for m in _RUN.finditer(text)]


def is_plain(text: str, spans: Spans) -> bool:
    """Is every run of digits a number: none has a leading zero, or is too long?"""
    return all((text[a] != "0" or b - a == 1) and b - a <= LONGEST for a, b in spans)
