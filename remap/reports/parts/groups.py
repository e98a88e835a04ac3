"""Findings as people read them: by level and category, repeated layers in one line."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from remap.audits.finding import Finding, Judged, Level
from remap.audits.report import Report
from remap.reports.collapse import Line, collapse

ORDER: tuple[Level, ...] = ("fail", "warn", "allow")
QUIET = frozenset({"matched", "renamed", "unverified-layout"})
"""Categories of which the number is enough."""


@dataclass(frozen=True)
class Group:
    """The findings of one category on one level; ``lines`` has their key, specs and detail."""

    level: Level
    code: str
    category: str
    judged: tuple[Judged, ...]

    @cached_property
    def lines(self) -> list[Line]:
        """Repeated layers in one line: cells are key, spec, detail, why."""
        return collapse(_row(j) for j in self.judged)

    def only(self, wanted: Callable[[Judged], bool]) -> Group:
        """The same of some of its findings."""
        return replace(self, judged=tuple(filter(wanted, self.judged)))

    def alike(self) -> Iterator[tuple[Line, Judged]]:
        """Each line with the first of the findings that it stands for."""
        return ((line, self.judged[line.first]) for line in self.lines)


def fingerprint(line: Line, judged: Judged) -> str:
    """What tells a line from others: as the one finding's own, or its keys' range."""
    f = judged.finding
    return f.fingerprint if line.count == 1 else f.fingerprint.replace(f.key, line.cells[0])


def groups(report: Report) -> list[Group]:
    """The groups, what fails first; of these what is about the whole, then by code."""
    found: dict[tuple[Level, str, str], list[Judged]] = {}
    for j in report.judged:
        found.setdefault((j.level, j.finding.code, j.finding.category), []).append(j)
    keys = sorted(found, key=lambda k: (ORDER.index(k[0]), not k[1].startswith("RM4"), k[1]))
    return [Group(*k, tuple(found[k])) for k in keys]


def suppressed(judged: Judged) -> bool:
    """Did a waiver or the baseline let it pass?"""
    return judged.because.startswith(("waived", "known"))


def _row(judged: Judged) -> tuple[str, str, str]:
    f = judged.finding
    why = judged.because if suppressed(judged) else ""
    return f.key or "(the whole)", specs(f), "; ".join(filter(None, (f.detail, why)))


def specs(finding: Finding) -> str:
    """``f32[4,4]``, or both sides where they differ."""
    found, expected = finding.found, finding.expected
    if found and expected and found != expected:
        return f"{found}, target {expected}"
    return str(expected or found or "")


def told(report: Report) -> Iterator[Group]:
    """The groups whose keys are worth listing."""
    return (g for g in groups(report) if g.category not in QUIET)
