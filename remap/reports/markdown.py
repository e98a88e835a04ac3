"""The report as Markdown: GitHub's job summary, a comment on a merge request."""

from __future__ import annotations

from collections.abc import Iterator

from remap.audits.report import Report
from remap.errors import printable
from remap.reports.parts.groups import Group, groups, told
from remap.reports.text import coverage, verdict

LINES = 50
"""Lines of one category."""


def render(report: Report) -> str:
    """The report as text."""
    return "\n".join(printable(line) for line in _lines(report)) + "\n"


def _lines(report: Report) -> Iterator[str]:
    yield f"### {verdict(report)}"
    yield ""
    yield f"{_code(report.source)} against {_code(report.target)}, policy {_code(report.policy.name)}  "
    yield f"loaded {coverage(report.coverage)}"
    yield ""
    yield "| level | code | category | count |"
    yield "| --- | --- | --- | ---: |"
    for g in groups(report):
        yield f"| {g.level} | {g.code} | {g.category} | {len(g.judged):,} |"
    for one in report.suggestions:
        yield ""
        counts = f"{one.after:,} of {one.of:,} keys would match, {one.before:,} do now"
        yield f"**To mend it:** {_text(one.what)}: {counts}"
        yield ""
        yield "```sh"
        yield from one.command.splitlines()
        yield "```"
    for group in told(report):
        yield from _group(group)


def _group(group: Group) -> Iterator[str]:
    lines = group.lines
    yield ""
    yield f"<details><summary>{group.level}: {group.category} ({len(group.judged):,})</summary>"
    yield ""
    yield "| count | key | spec | |"
    yield "| ---: | --- | --- | --- |"
    for line in lines[:LINES]:
        key, spec, detail = line.cells
        yield f"| {line.count} | {_code(key)} | {_code(spec) if spec else ''} | {_text(detail)} |"
    if len(lines) > LINES:
        yield f"| | and {len(lines) - LINES} more lines | | |"
    yield ""
    yield "</details>"


def _code(text: str) -> str:
    """Code that a table can hold."""
    ticks = "``" if "`" in text else "`"
    return f"{ticks}{_flat(text)}{ticks}"


def _text(text: str) -> str:
    return _flat(text).replace("<", "&lt;").replace("*", "\\*").replace("_", "\\_")


def _flat(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
