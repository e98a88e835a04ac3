"""Findings as people read them: by level and category, repeated layers in one line."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

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

    @property
    def lines(self) -> list[Line]:
        """Repeated layers in one line: cells are key, spec, detail, why."""
        return collapse(_row(j) for j in self.judged)


def groups(report: Report) -> list[Group]:
    """The groups, what fails first; of these what is about the whole, then by code."""
    found: dict[tuple[Level, str, str], list[Judged]] = {}
    for j in report.judged:
        found.setdefault((j.level, j.finding.code, j.finding.category), []).append(j)
    keys = sorted(found, key=lambda k: (ORDER.index(k[0]), not k[1].startswith("RM4"), k[1]))
    return [Group(*k, tuple(found[k])) for k in keys]


def _row(judged: Judged) -> tuple[str, str, str]:
    f = judged.finding
    why = judged.because if judged.because.startswith(("waived", "known")) else ""
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
