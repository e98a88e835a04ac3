"""A constant prefix that one side has and the other has not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable

from remap.audits.comparison import Comparison
from remap.audits.names.masks import alike

DEEPEST = 4
"""Segments that a prefix may have."""
SAMPLE = 8
"""Keys that are looked at of all that differ in digits only."""


def names(table: Comparison) -> tuple[str, dict[str, str]]:
    """(what, offered key -> new name) for the prefix that makes most keys match; ("", {}) without one."""
    ours, strip = best(table.excess, table.target.specs)
    theirs, add = best(table.absent, table.offered)
    if not strip and not add:
        return "", {}
    if strip >= add:
        return f"take the prefix {ours} off", {k: k[len(ours) :] for k in table.offered if k.startswith(ours)}
    return f"put the prefix {theirs} before", {k: theirs + k for k in table.offered}


def best(keys: Iterable[str], others: Collection[str]) -> tuple[str, int]:
    """The leading segments of ``keys`` without which most of them are among ``others``, and about how many:
    of keys that differ in digits only some stand for all."""
    found: Counter[str] = Counter()
    for several in alike(keys):
        sample = several[:: max(1, len(several) // SAMPLE)]
        for key in sample:
            at = 0
            for _ in range(DEEPEST):
                at = key.find(".", at) + 1
                if not at:
                    break
                if key[at:] in others:
                    found[key[:at]] += len(several) // len(sample)
    return found.most_common(1)[0] if found else ("", 0)
