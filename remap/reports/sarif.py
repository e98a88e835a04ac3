"""The report as SARIF 2.1.0, for code scanning: one rule a category, one result for findings that are alike.

Layers that are alike are one result, with its number of occurrences: code scanning takes 25,000 results, and
shows 5,000. What passes is left out, but for findings that were waived or are in the baseline: these are
results with a suppression.

Source: OASIS, Static Analysis Results Interchange Format (SARIF) Version 2.1.0.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from remap.audits import registry
from remap.audits.category import Category
from remap.audits.finding import Judged, Level
from remap.audits.report import Report
from remap.reports.collapse import Line
from remap.reports.parts.groups import fingerprint, groups, suppressed
from remap.version import __version__

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_LEVELS: dict[Level, str] = {"fail": "error", "warn": "warning", "allow": "note"}


def render(report: Report) -> str:
    """The log as indented text."""
    return msgspec.json.format(msgspec.json.encode(log(report)), indent=2).decode() + "\n"


def log(report: Report) -> dict[str, Any]:
    """The log: one run."""
    categories = registry.categories()
    places = {c.name: n for n, c in enumerate(categories)}
    rules = [_rule(c) for c in categories]
    results = []
    for group in groups(report):
        told = group.only(suppressed) if group.level == "allow" else group
        name = group.category
        if told.judged and name not in places:
            places[name] = len(rules)
            rules.append({"id": f"{group.code}-{name}", "name": name})
        for line, first in told.alike():
            results.append(_result(line, first, places[name], rules[places[name]]["id"], report))
    driver = {"name": "remap", "version": __version__, "rules": rules}
    run = {
        "tool": {"driver": driver},
        "invocations": [{"executionSuccessful": True, "exitCode": report.exit_code}],
        "results": results,
        "columnKind": "unicodeCodePoints",
        "properties": {"target": report.target, "policy": report.policy.name, "passed": report.passed},
    }
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}


def _rule(category: Category) -> dict[str, Any]:
    about = category.about
    return {
        "id": category.code,
        "name": category.name,
        "shortDescription": {"text": about.what},
        "fullDescription": {"text": about.why},
        "help": {"text": about.remedy},
        "defaultConfiguration": {"level": _LEVELS[category.level]},
    }


def _result(line: Line, judged: Judged, place: int, rule: str, report: Report) -> dict[str, Any]:
    f = judged.finding
    key, spec, detail = line.cells
    what = " ".join(filter(None, (key if f.key else "", spec, f"({detail})" if detail else "")))
    uri = Path(report.source)
    found: dict[str, Any] = {
        "ruleId": rule,
        "ruleIndex": place,
        "level": _LEVELS[judged.level],
        "message": {"text": f"{f.category}: {what}" + (f", {line.count} tensors" if line.count > 1 else "")},
        "occurrenceCount": line.count,
        "locations": [
            {
                "physicalLocation": {
                    "artifactLocation": {"uri": uri.as_uri() if uri.is_absolute() else uri.as_posix()}
                },
                "logicalLocations": [{"fullyQualifiedName": f.key or report.target, "kind": "member"}],
            }
        ],
        "partialFingerprints": {"remapFinding/v1": fingerprint(line, judged)},
    }
    if suppressed(judged):
        found["suppressions"] = [{"kind": "external", "justification": judged.because}]
    return found
