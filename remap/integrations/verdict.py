"""Reports that a policy fails, as one error: what fails, collapsed, and the command that mends most."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from remap.audits.report import Report
from remap.errors import AuditFailed
from remap.reports.groups import groups


def failure(reports: Sequence[Report], what: str) -> AuditFailed:
    """The error that carries ``reports``. ``what`` says what was not done, or was."""
    failed = [r for r in reports if not r.passed]
    problems = [line for r in failed for line in _problems(r, several=len(failed) > 1)]
    fixes = dict.fromkeys(
        f"{s.what}, so that {s.after:,} of {s.of:,} keys match (now {s.before:,}): {_first(s.command)}"
        for r in failed
        for s in r.suggestions[:1]
    )
    where = f"{failed[0].source} against {failed[0].target}" if len(failed) == 1 else None
    names = ", ".join(dict.fromkeys(r.policy.name for r in failed))
    error = AuditFailed(
        f"{what}: the policy {names} fails it",
        where=where,
        problems=problems,
        remedy="; ".join(fixes)
        or "give the rules that make the names match, or a policy that lets these findings pass",
    )
    error.reports = tuple(reports)
    return error


def _problems(report: Report, *, several: bool) -> Iterator[str]:
    if several:
        yield f"{report.source} against {report.target}:"
    for group in groups(report):
        if group.level != "fail":
            continue
        for line in group.lines:
            count = f"{line.count} x " if line.count > 1 else ""
            yield f"{group.code} {group.category}: {count}{' '.join(filter(None, line.cells))}"


def _first(text: str) -> str:
    return text.partition("\n")[0]
