"""The forms that an audit's report has. Adding one is a module with ``render``, and its line here."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

from remap.audits.report import Report
from remap.errors import UsageError

MODULES = {
    "text": "remap.reports.text",
    "json": "remap.reports.document",
    "sarif": "remap.reports.sarif",
    "junit": "remap.reports.junit",
    "github": "remap.reports.github",
    "markdown": "remap.reports.markdown",
    "html": "remap.reports.html",
}
"""Name -> module."""


def render(report: Report, form: str) -> str:
    """The report in the form that is called so. Raises UsageError."""
    if form not in MODULES:
        raise UsageError(f"no report is called {form!r}", remedy=f"use one of {', '.join(MODULES)}")
    found: Callable[[Report], str] = import_module(MODULES[form]).render
    return found(report)
