"""The report as SARIF 2.1.0, for code scanning: one rule a category, one result a finding.

What passes is left out, but for findings that were waived or are in the baseline: these are results with a
suppression.

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
from remap.reports.parts.groups import specs
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
    for j in report.judged:
        if j.level == "allow" and not suppressed(j):
            continue
        name = j.finding.category
        if name not in places:
            places[name] = len(rules)
            rules.append({"id": f"{j.finding.code}-{name}", "name": name})
        results.append(_result(j, places[name], rules[places[name]]["id"], report))
    driver = {"name": "remap", "version": __version__, "rules": rules}
    run = {
        "tool": {"driver": driver},
        "invocations": [{"executionSuccessful": True, "exitCode": report.exit_code}],
        "results": results,
        "columnKind": "unicodeCodePoints",
        "properties": {"target": report.target, "policy": report.policy.name, "passed": report.passed},
    }
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}


def suppressed(judged: Judged) -> bool:
    """Did a waiver or the baseline let it pass?"""
    return judged.because.startswith(("waived", "known"))


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


def _result(judged: Judged, place: int, rule: str, report: Report) -> dict[str, Any]:
    f = judged.finding
    what = " ".join(filter(None, (f.key, specs(f), f"({f.detail})" if f.detail else "")))
    uri = Path(report.source)
    found: dict[str, Any] = {
        "ruleId": rule,
        "ruleIndex": place,
        "level": _LEVELS[judged.level],
        "message": {"text": f"{f.category}: {what}"},
        "locations": [
            {
                "physicalLocation": {
                    "artifactLocation": {"uri": uri.as_uri() if uri.is_absolute() else uri.as_posix()}
                },
                "logicalLocations": [{"fullyQualifiedName": f.key or report.target, "kind": "member"}],
            }
        ],
        "partialFingerprints": {"remapFinding/v1": f.fingerprint},
    }
    if suppressed(judged):
        found["suppressions"] = [{"kind": "external", "justification": judged.because}]
    return found
