"""The report as JSON, with a version; what other programs read.

    {"version": 1, "source", "target", "policy", "passed",
     "coverage": {"keys", "all_keys", "elements", "all_elements"}, "counts": {category: n},
     "matched": [key], "missing": [key], "unexpected": [key], "shape_mismatched": [key],
     "findings": [{"code", "category", "level", "because", "key", "source", "found", "expected",
                   "rule", "detail"}],
     "drops": [{"key", "because"}],
     "suggestions": [{"kind", "what", "before", "after", "of", "command", "pack"}],
     "baseline_gone": [fingerprint], "notes": [text]}

A spec is ``{"dtype", "shape"}``. ``matched`` keys are named once; among the findings they are only where
there is something to say of them.
"""

from __future__ import annotations

import msgspec

from remap.audits.report import LOADED, Report
from remap.types import TensorSpec

VERSION = 1


def document(report: Report) -> dict[str, object]:
    """The document."""
    share = report.coverage
    keys: dict[str, list[str]] = {"matched": [], "missing": [], "unexpected": [], "shape_mismatched": []}
    for f in report.findings:
        if f.category in LOADED:
            keys["matched"].append(f.key)
        elif f.category == "shape-mismatch":
            keys["shape_mismatched"].append(f.key)
        elif f.expected is not None and f.found is None:
            keys["missing"].append(f.key)
        elif f.category.startswith("unexpected-"):
            keys["unexpected"].append(f.key)
    return {
        "version": VERSION,
        "source": report.source,
        "target": report.target,
        "policy": {"name": report.policy.name, "title": report.policy.title},
        "passed": report.passed,
        "coverage": {
            "keys": share.keys,
            "all_keys": share.all_keys,
            "elements": share.elements,
            "all_elements": share.all_elements,
        },
        "counts": dict(report.counts),
        **keys,
        "findings": [
            {
                "code": j.finding.code,
                "category": j.finding.category,
                "level": j.level,
                "because": j.because,
                "key": j.finding.key,
                "source": j.finding.source,
                "found": _spec(j.finding.found),
                "expected": _spec(j.finding.expected),
                "rule": j.finding.rule,
                "detail": j.finding.detail,
            }
            for j in report.judged
            if j.finding.category != "matched" or j.finding.detail
        ],
        "drops": [{"key": k, "because": why} for k, why in report.drops],
        "suggestions": [
            {
                "kind": s.kind,
                "what": s.what,
                "before": s.before,
                "after": s.after,
                "of": s.of,
                "command": s.command,
                "pack": s.pack,
            }
            for s in report.suggestions
        ],
        "baseline_gone": report.gone,
        "notes": report.notes,
    }


def _spec(spec: TensorSpec | None) -> dict[str, object] | None:
    return None if spec is None else {"dtype": spec.dtype.name, "shape": spec.shape}


def render(report: Report) -> str:
    """The document as indented text."""
    return msgspec.json.format(msgspec.json.encode(document(report)), indent=2).decode() + "\n"
