"""GitHub's annotations: a line a group of findings, which the log of a job turns into a remark.

``::error title=RM101 missing-parameter::2.attention.dense.weight ...``; layers that are alike are one line.
GitHub shows ten errors and ten warnings of a step; the rest are counted in the last one.
Source: GitHub Docs, Workflow commands for GitHub Actions.
"""

from __future__ import annotations

from collections.abc import Iterator

from remap.audits.report import Report
from remap.errors import printable
from remap.reports.parts.groups import told
from remap.reports.text import coverage, verdict

SHOWN = 9
"""Lines of one level."""
_COMMANDS = {"fail": "error", "warn": "warning"}


def render(report: Report) -> str:
    """The annotations, and a last line with the verdict."""
    return "\n".join(printable(line) for line in _lines(report)) + "\n"


def _lines(report: Report) -> Iterator[str]:
    for level, command in _COMMANDS.items():
        rows = [(g, x) for g in told(report) if g.level == level for x in g.lines]
        for group, line in rows[:SHOWN]:
            text = " ".join(filter(None, line.cells))
            many = f" ({line.count})" if line.count > 1 else ""
            yield _command(command, f"{group.code} {group.category}", f"{text}{many}")
        if len(rows) > SHOWN:
            yield _command(command, "remap audit", f"and {len(rows) - SHOWN} more lines of this kind")
    for one in report.suggestions[:1]:
        yield _command("notice", "remap audit", f"{one.what}: {one.after} of {one.of} keys would match")
    yield f"{report.source} against {report.target}: {verdict(report)}; loaded {coverage(report.coverage)}"


def _command(name: str, title: str, text: str) -> str:
    """Escaped as actions/toolkit does (packages/core/src/command.ts)."""
    data = text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    title = title.replace("%", "%25").replace(":", "%3A").replace(",", "%2C")
    return f"::{name} title={title}::{data}"
