"""A rule -> the rule that undoes it, or the reason why there is none.

Templates change sides and tables are read the other way round; arithmetic is solved where it is
matched. A drop has no inverse and needs none: what it dropped isn't there to be restored.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from remap.ops.base import NoInverse, Op
from remap.packs.language.pack import Direction, Rule, RuleStage
from remap.packs.language.template import Capture, Index, Template
from remap.packs.matching.matcher import trouble


def rules_for(stage: RuleStage, direction: Direction) -> tuple[Rule, ...]:
    """The rules that a stage applies in one direction."""
    if direction == "forward":
        return tuple(r for r in stage.rules if r.only != "inverse")
    return tuple(_inverted_all(stage.rules))


def _inverted_all(rules: Iterable[Rule]) -> Iterable[Rule]:
    for rule in rules:
        if rule.only == "inverse":
            yield rule
        elif rule.only is None and rule.does != "drop":
            yield inverted(rule)


def inverted(rule: Rule) -> Rule:
    """The rule that undoes ``rule``; one that refuses, with the reason, where there is none."""
    if rule.does == "keep":
        return rule
    if rule.does == "add":
        because = "added on the way there; the source has no such tensor"
        return replace(rule, does="drop", sources=rule.targets, targets=(), because=because, optional=True)
    reason = no_inverse(rule)
    if reason is not None:
        sources = tuple(_loosened(t).flipped() for t in rule.targets)
        return replace(
            rule, does="refuse", sources=sources, targets=(), ops=(), because=reason, optional=True
        )
    if rule.back is not None:
        source, target = rule.back
        return replace(rule, sources=(source,), targets=(target,), back=(rule.sources[0], rule.targets[0]))
    sources = tuple(t.flipped() for t in rule.targets)
    targets = tuple(s.flipped() for s in rule.sources if isinstance(s, Template))
    ops = tuple(o for o in map(_undone, reversed(rule.ops)) if not isinstance(o, NoInverse))
    one_to_one = len(rule.sources) == len(rule.targets) == 1 and not any(rule.axes)
    expect = rule.expect if one_to_one else None
    return replace(rule, sources=sources, targets=targets, ops=ops, expect=expect, partition=None)


def _loosened(template: Template) -> Template:
    """The same with any number where there is arithmetic: enough to see that a key came from it."""
    done = [Capture(None, "int") if isinstance(e, Index) and e.captures else e for e in template.elements]
    return replace(template, elements=tuple(done))


def no_inverse(rule: Rule) -> str | None:
    """Why a rename has no inverse; None where it has one."""
    if rule.lossy:
        return rule.because or "its author says so"
    if rule.back is not None:
        return None
    for template in rule.targets:
        why = _unsolvable(template) or _table_repeats(template)
        if why:
            return why
    for op in rule.ops:
        undone = _undone(op)
        if isinstance(undone, NoInverse):
            return f"{op.name}: {undone.reason}"
    if not rule.ops:
        lost = rule.templates[0].captures.keys() - rule.targets[0].captures.keys()
        if lost:
            return f"{', '.join(sorted(lost))} is captured and not written"
    return None


def _undone(op: Op) -> Op | NoInverse:
    return op.inverse()


def _unsolvable(template: Template) -> str | None:
    why = trouble(template)
    return None if why is None else f"{template.text!r}: {why}"


def _table_repeats(template: Template) -> str | None:
    for e in template.elements:
        if isinstance(e, Capture) and e.table:
            written = [right for _, right in e.table]
            double = sorted({w for w in written if written.count(w) > 1})
            if double:
                return f"{e.name} is written as {double[0]!r} for more than one name"
    return None
