"""The baseline: findings that are known, in a file, so that only news fails.

``{"version": 1, "findings": ["RM201 lm_head.bias", ...]}``, sorted, so that a change of it reads well in a
diff.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from remap.audits.finding import Judged
from remap.documents import parse_as, read_document
from remap.errors import InputError, UsageError

VERSION = 1


class _Document(msgspec.Struct, forbid_unknown_fields=True):
    version: int
    findings: list[str]


@dataclass(frozen=True)
class Baseline:
    """Fingerprints of known findings."""

    fingerprints: frozenset[str]


def read(path: Path) -> Baseline:
    """Read a baseline. Raises UsageError."""
    try:
        found = parse_as(_Document, read_document(path), "a baseline", path)
    except InputError as e:
        what = f"the baseline {e.what.removeprefix('it ')}" if e.what.startswith("it ") else e.what
        raise UsageError(what, where=path, remedy="--update-baseline writes one") from None
    if found.version != VERSION:
        raise UsageError(f"version {found.version}; this remap reads {VERSION}", where=path)
    return Baseline(frozenset(found.findings))


def dump(judged: Iterable[Judged]) -> str:
    """The text of a baseline in which everything that fails is known. What must always fail stays out of
    it."""
    known = sorted(
        {j.finding.fingerprint for j in judged if j.level == "fail" and is_pardonable(j.finding.category)}
    )
    return (
        msgspec.json.format(msgspec.json.encode({"version": VERSION, "findings": known}), indent=1).decode()
        + "\n"
    )


def is_pardonable(category: str) -> bool:
    """May a baseline or a waiver let it pass?"""
    return category not in UNPARDONABLE


ALWAYS = frozenset({"zero-overlap", "collision", "no-rule", "unfit-rule"})
"""Categories that fail whatever a policy says."""
UNPARDONABLE = ALWAYS | {"expectation", "coverage", "expired-waiver", "unused-waiver"}
"""About the whole: there is nothing in them to get used to."""
