"""The audit: does what a plan gives fit a target, and if not, why?

    audit(source, target, plan, policy) -> Report

One generator of findings: every category looks at the comparison in turn and explains some of its keys. Then
the policy judges them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from remap.audits import registry
from remap.audits.baseline import Baseline
from remap.audits.categories.custom import customs
from remap.audits.comparison import Comparison, Values, compare
from remap.audits.finding import Finding
from remap.audits.judge import judge
from remap.audits.policy import STRICT, Policy
from remap.audits.report import Report
from remap.audits.suggest.search import suggest
from remap.audits.target import Target
from remap.comparing.digests import digests
from remap.errors import UsageError
from remap.expr import Expr, Permute, Take
from remap.plan import Plan
from remap.types import Catalog


def audit(
    source: Catalog,
    target: Target,
    plan: Plan | None = None,
    policy: Policy = STRICT,
    *,
    baseline: Baseline | None = None,
    values: bool = False,
    options: Sequence[str] | None = None,
) -> Report:
    """Compare what ``source`` gives (by ``plan``, where there is one) with ``target``, and judge it.

    baseline  findings that are known
    values    compare values where both sides have them. Raises UsageError where one has none.
    options   what was asked for, as words of the command line, for the commands that are suggested
    """
    table = compare(source, target, plan)
    if values:
        table.values = compare_values(table)
    found = list(findings(table, policy))
    report = judge(table, found, policy, baseline)
    return report if report.passed else replace(report, suggestions=suggest(table, policy.ref, options))


def findings(table: Comparison, policy: Policy = STRICT) -> Iterator[Finding]:
    """Everything that the categories have to say, category by category."""
    for category in (*customs(policy), *registry.categories()):
        found = list(category.find(category, table))
        if category.claims:
            table.claim(f.key for f in found)
        yield from found


def compare_values(table: Comparison) -> Values:
    """Digests of both sides, for the keys that both have in one shape and type.

    For those that differ it is said where the source's values are in the target: under another key (layers
    that were swapped), or transposed (a square matrix). Raises UsageError where a side has no values.
    """
    there = table.target.catalog
    sides = {str(table.source.root): table.source, table.target.name: there}
    empty = [
        name for name, c in sides.items() if c is None or any(e.location is None for e in c.entries.values())
    ]
    if there is None or empty:
        raise UsageError(
            "values can't be compared: only names and shapes are there",
            problems=empty,
            remedy="give checkpoints on both sides, or leave --values out",
        )
    wanted = there.entries
    both = [k for k in table.shared if table.offered[k] == wanted[k].spec]
    given: dict[str, Expr] = {
        k: table.outputs[k].expr if table.outputs else Take(table.source.entries[k]) for k in both
    }
    left, right = digests(given), digests({k: Take(wanted[k]) for k in both})
    differ = [k for k in both if left[k] != right[k]]
    square = [k for k in differ if len(s := wanted[k].spec.shape) == 2 and s[0] == s[1]]
    turned = digests({k: Permute(given[k], (1, 0)) for k in square}) if square else {}
    by_digest = {digest: k for k, digest in right.items()}
    details = {}
    for key in differ:
        elsewhere = by_digest.get(left[key])
        if turned.get(key) == right[key]:
            details[key] = "the transpose of the target's values"
        elif elsewhere:
            details[key] = f"the values of the target's {elsewhere}"
        else:
            details[key] = "other values"
    return Values(frozenset(k for k in both if left[k] == right[k]), details)
