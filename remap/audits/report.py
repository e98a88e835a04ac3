"""What an audit gives: every finding with its level, coverage, suggestions, a verdict."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from remap.audits.finding import Finding, Judged, Level
from remap.audits.policy import Policy
from remap.audits.suggest.suggestion import Suggestion

LOADED = frozenset({"matched", "renamed", "dtype-mismatch", "values-differ"})
"""Categories of the target's keys that get the source's tensor."""


@dataclass(frozen=True, slots=True)
class Share:
    """Some of all: keys, and elements (0 of 0 where shapes are not known)."""

    keys: int
    all_keys: int
    elements: int
    all_elements: int

    @property
    def of_keys(self) -> float:
        """Between 0 and 1; 0 where there are none."""
        return self.keys / self.all_keys if self.all_keys else 0.0

    @property
    def of_elements(self) -> float:
        """Between 0 and 1; of the keys, where shapes are not known."""
        return self.elements / self.all_elements if self.all_elements else self.of_keys


@dataclass(frozen=True)
class Report:
    """The result of an audit.

    source, target  names of both
    judged          every finding with its level, in the target's order
    coverage        how much of the target the source gives
    drops           source keys that a rule drops, with the reason
    known           findings that are in the baseline
    gone            entries of the baseline that are not found any more
    """

    source: str
    target: str
    policy: Policy
    judged: tuple[Judged, ...]
    coverage: Share
    suggestions: tuple[Suggestion, ...] = ()
    drops: tuple[tuple[str, str], ...] = ()
    gone: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @cached_property
    def findings(self) -> tuple[Finding, ...]:
        """Every finding, whatever its level."""
        return tuple(j.finding for j in self.judged)

    @cached_property
    def counts(self) -> Mapping[str, int]:
        """Category -> number of findings."""
        return Counter(j.finding.category for j in self.judged)

    @cached_property
    def levels(self) -> Mapping[Level, int]:
        """Level -> number of findings."""
        return Counter(j.level for j in self.judged)

    @property
    def passed(self) -> bool:
        """Does the policy let it pass?"""
        return not self.levels.get("fail", 0)

    @property
    def exit_code(self) -> int:
        """0 where it passes, 1 where it doesn't."""
        return 0 if self.passed else 1

    def at(self, level: Level) -> tuple[Judged, ...]:
        """The findings of one level."""
        return tuple(j for j in self.judged if j.level == level)

    def of(self, category: str) -> tuple[Finding, ...]:
        """The findings of one category."""
        return tuple(f for f in self.findings if f.category == category)

    def __str__(self) -> str:
        verdict = "passes" if self.passed else "fails"
        counts = ", ".join(f"{n:,} {c}" for c, n in sorted(self.counts.items()))
        return f"{self.source} against {self.target}: {verdict} the policy {self.policy.name}: {counts}"
