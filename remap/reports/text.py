"""The report for a person at a terminal: verdict, coverage, a tree, what was found, what to do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from remap.audits import registry
from remap.audits.report import Report, Share
from remap.errors import printable
from remap.reports.parts.groups import Group, groups, told
from remap.reports.parts.tree import Node, build, collapsed

LINES = 24
"""Lines of one category that are printed; the rest are counted. ``json`` has them all."""
TREE = 60
"""Modules that are printed as a tree; html has any number."""
BAR = 20


def render(report: Report) -> str:
    """The report as text."""
    return "\n".join(printable(line) for line in _lines(report)) + "\n"


def _lines(report: Report) -> Iterator[str]:
    yield f"{report.source} against {report.target}"
    yield f"{verdict(report)} (policy {report.policy.name}: {report.policy.title})"
    yield ""
    yield f"loaded  {coverage(report.coverage)}"
    yield ""
    yield from _table(
        [(g.level, f"{len(g.judged):,}", g.code, g.category, _what(g)) for g in groups(report)],
        ("level", "count", "code", "category", ""),
        right=frozenset({1}),
    )
    some = 0 < report.coverage.keys < report.coverage.all_keys
    tree = list(_tree(build(report), 0)) if some else []
    if tree and len(tree) <= TREE:
        yield ""
        yield from _table(
            [(bar, counts, name) for _, bar, counts, name in tree], ("loaded", "keys", "module")
        )
    for group in told(report):
        yield ""
        yield from _group(group)
    yield from _next(report)
    for note in report.notes:
        yield f"note: {note}"


def verdict(report: Report) -> str:
    """``FAILS: 3 findings``, or ``PASSES``."""
    fails, warns = len(report.at("fail")), len(report.at("warn"))
    if fails:
        return f"FAILS: {fails:,} finding{'s' * (fails != 1)}"
    return "PASSES" + (f", {warns:,} warning{'s' * (warns != 1)}" if warns else "")


def coverage(share: Share) -> str:
    """Keys and elements, with percents."""
    text = f"{share.keys:,} of {share.all_keys:,} keys ({share.of_keys:.1%})"
    if share.all_elements:
        text += f", {share.elements:,} of {share.all_elements:,} elements ({share.of_elements:.1%})"
    return text


def _what(group: Group) -> str:
    about = [c for c in registry.categories() if c.name == group.category]
    return about[0].about.what if about else "a category of the policy"


def _tree(node: Node, depth: int) -> Iterator[tuple[str, str, str, str]]:
    for name, nodes in collapsed(node):
        if not any(n.children for n in nodes):
            continue
        first = nodes[0]
        keys, loaded = sum(n.keys for n in nodes), sum(n.loaded for n in nodes)
        if not keys:
            continue
        full = round(first.share * BAR)
        mark = "" if loaded == keys else "!"
        yield mark, "#" * full + "." * (BAR - full), f"{loaded:,}/{keys:,}", "  " * depth + name
        if mark:
            yield from _tree(first, depth + 1)


def _group(group: Group) -> Iterator[str]:
    yield f"{group.level}: {group.category} ({group.code}), {len(group.judged):,}"
    lines = group.lines
    yield from (
        f"  {row}" for row in _table([(str(x.count), *x.cells) for x in lines[:LINES]], (), frozenset({0}))
    )
    if len(lines) > LINES:
        yield f"  ... and {len(lines) - LINES} more lines; --format json has all"


def _next(report: Report) -> Iterator[str]:
    for one in report.suggestions:
        yield ""
        yield f"to mend it: {one.what}: {one.after:,} of {one.of:,} keys would match, {one.before:,} do now"
        yield from (f"  {command}" for command in one.command.splitlines())
    categories = {c.name: c for c in registry.categories()}
    if not report.suggestions and not report.passed:
        yield ""
        for name in dict.fromkeys(j.finding.category for j in report.at("fail")):
            if name in categories:
                yield f"{name}: {categories[name].about.remedy}"
    if report.gone:
        yield ""
        yield f"{len(report.gone):,} findings of the baseline are gone; --update-baseline forgets them"


def _table(
    rows: Sequence[Sequence[str]], header: Sequence[str], right: frozenset[int] = frozenset()
) -> Iterator[str]:
    every = [header, *rows] if header else list(rows)
    if not rows:
        return
    widths = [max(len(r[i]) for r in every) for i in range(len(every[0]))]
    for row in every:
        cells = [
            c.rjust(w) if i in right else c.ljust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True))
        ]
        yield "  ".join(cells).rstrip()
