"""Reports that a policy fails, as one error: what fails, collapsed, and the command that mends most."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from remap.audits.report import Report
from remap.audits.suggest.suggestion import Suggestion
from remap.errors import AuditFailed
from remap.reports.parts.groups import groups


def failure(reports: Sequence[Report], what: str) -> AuditFailed:
    """The error that carries ``reports``. ``what`` says what was not done, or was."""
    failed = [r for r in reports if not r.passed]
    problems = [line for r in failed for line in _problems(r, several=len(failed) > 1)]
    fixes = dict.fromkeys(_fix(r.suggestions[0]) for r in failed if r.suggestions)
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
    yield from report.notes


def _fix(found: Suggestion) -> str:
    """A change that one can make from Python, where the command line's files are not at hand."""
    more = "; its pack is the error's reports[0].suggestions[0].pack" if found.pack else ""
    return f"{found.what}, so that {found.after:,} of {found.of:,} keys match (now {found.before:,}){more}"
