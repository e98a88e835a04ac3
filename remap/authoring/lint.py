"""A pack -> what can be said against it without any keys. ``remap rules lint``.

Errors of the YAML, of templates and of captures are found when a pack is loaded; here is what a loadable
pack still does wrong. Each check is a function that gives findings; ``CHECKS`` lists them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import combinations, product

from remap.authoring.examples import plan_example
from remap.authoring.findings import Level, PackFinding
from remap.authoring.orders import order_findings
from remap.authoring.overlap import covers, meet
from remap.errors import PackError, RemapError
from remap.ops import arithmetic
from remap.packs import load_layout
from remap.packs.applying.invert import no_inverse, rules_for
from remap.packs.language.pack import Pack, Pattern, Rule, RuleStage, UseStage
from remap.packs.language.patterns import unbounded
from remap.packs.language.template import Template
from remap.plan import make_plan
from remap.types import Catalog

Check = Callable[[Pack], Iterator[PackFinding]]


def lint(
    pack: Pack, keys: Catalog | None = None, params: Mapping[str, str] | None = None
) -> list[PackFinding]:
    """Every finding, in the order of the file; with ``keys``, what the pack does wrong on them, too."""
    found = [f for check in CHECKS for f in check(pack)]
    if keys is not None:
        found += _on_keys(pack, keys, params or {})
    return sorted(found, key=lambda f: (f.line, f.code))


def _on_keys(pack: Pack, keys: Catalog, params: Mapping[str, str]) -> Iterator[PackFinding]:
    """Rules that match none of the keys, and what the plan would refuse."""
    try:
        plan = make_plan(keys, [pack], params=params, partial=True)
    except RemapError as e:
        yield PackFinding("plan-fails", "error", pack.file, 1, str(e))
        return
    fired = {r for o in plan.outputs for r in o.rule.split(" > ")} | {d.rule for d in plan.drops}
    for rule in pack.own_rules:
        if rule.id not in fired and rule.does != "keep" and rule.only != "inverse":
            message = f"rule {rule.id}: it matches none of the given keys"
            level: Level = "warning" if rule.optional else "error"
            yield PackFinding("dead-rule", level, pack.file, rule.line, message)


def _overlap(pack: Pack) -> Iterator[PackFinding]:
    """Each key has one owner: no two rules of a stage match one key, and none takes all of a keep's."""
    for other, rule in _pairs(pack):
        for one, two in product(rule.sources, other.sources):
            if not (isinstance(one, Template) and isinstance(two, Template)):
                continue
            keeps = [r for r in (rule, other) if r.does == "keep"]
            if len(keeps) == 1:
                yield from _shadowed(pack, keeps[0], other if keeps[0] is rule else rule)
                break
            key = meet(one, two, pack.params)
            if key is not None:
                message = f"it matches {key}, as rule {other.id} in line {other.line} does"
                yield _at(pack, rule, "same-source", f"{message}; narrow one, or let one say replaces:")
                break


def _shadowed(pack: Pack, keep: Rule, rule: Rule) -> Iterator[PackFinding]:
    """A keep yields to what transforms: one that matches nothing else is dead."""
    templates = [t for t in rule.sources if isinstance(t, Template)]
    narrow = [k for k in keep.sources if isinstance(k, Template)]
    if all(any(covers(t, k, pack.params) for t in templates) for k in narrow):
        message = f"rule {rule.id} in line {rule.line} takes all that it matches"
        remedy = f"let it say replaces: {rule.id}, narrow that rule, or leave the keep out"
        yield _at(pack, keep, "shadowed", f"{message}; {remedy}")


def _pairs(pack: Pack) -> Iterator[tuple[Rule, Rule]]:
    """Rules of one stage that can be at work together, the earlier first, without those that yield.

    On the way back they are those that it has for itself, each with any other: what else could meet there is
    what could forward."""
    for stage in pack.stages:
        if not isinstance(stage, RuleStage):
            continue
        for one, other in combinations(rules_for(stage, "forward"), 2):
            if not _yields(one, other) and not _exclude(one, other):
                yield one, other
        for one, other in combinations(rules_for(stage, "inverse"), 2):
            own = "inverse" in (one.only, other.only)
            if own and not _yields(one, other) and not _exclude(one, other):
                yield one, other


def _yields(one: Rule, other: Rule) -> bool:
    """Does one of them yield to the other, by its name?"""
    return one.id in other.replaces or other.id in one.replaces


def _at(pack: Pack, rule: Rule, code: str, message: str) -> PackFinding:
    return PackFinding(code, "error", pack.file, rule.line, f"rule {rule.id}: {message}")


def _evidence(pack: Pack) -> Iterator[PackFinding]:
    """A pack says where its facts come from."""
    if not pack.evidence:
        message = "no evidence: where do its facts come from? add evidence: with project, path and commit"
        yield PackFinding("no-evidence", "error", pack.file, 1, message)


def _examples(pack: Pack) -> Iterator[PackFinding]:
    """A pack has examples, and each rule fires in one of them."""
    if not pack.examples:
        yield PackFinding(
            "no-examples", "error", pack.file, 1, "the pack has no examples; add given: and expect:"
        )
        return
    shown: set[str] = set()
    for example in pack.examples:
        try:
            plan = plan_example(pack, example)
        except RemapError:
            continue
        shown |= {d.rule for d in plan.drops}
        for output in plan.outputs:
            shown |= set(output.rule.split(" > "))
    for rule in pack.own_rules:
        if rule.id not in shown and rule.does != "keep":
            yield _at(pack, rule, "rule-without-example", "no example shows it; add one where it matches")


def _inverse(pack: Pack) -> Iterator[PackFinding]:
    """What has no inverse says so, with a reason."""
    for rule in pack.own_rules:
        if rule.does == "rename" and not rule.lossy:
            reason = no_inverse(rule)
            if reason is not None:
                yield _at(
                    pack, rule, "no-inverse", f"it has no inverse ({reason}); say inverse: none with because:"
                )


def _regexes(pack: Pack) -> Iterator[PackFinding]:
    """A regex is bounded: it says what ends each part, and does not repeat repetitions."""
    for rule in pack.own_rules:
        for source in (*rule.sources, *(rule.back or ())[:1]):
            found = unbounded(source) if isinstance(source, Pattern) else None
            if found is not None:
                message = f"the regex {source.text!r} has no bound: {found}"
                yield _at(pack, rule, "regex-without-bound", f"{message}; say what it may take, as in [^.]+")


def _unconfirmed(pack: Pack) -> Iterator[PackFinding]:
    """Nothing is left open."""
    for rule in pack.own_rules:
        if rule.confirm:
            yield _at(pack, rule, "unconfirmed", f"{rule.confirm}; make sure, then delete confirm:")


def _unused_params(pack: Pack) -> Iterator[PackFinding]:
    """Each parameter is used."""
    used: set[str] = set()
    for rule in pack.own_rules:
        used |= rule.params_used
    for stage in pack.stages:
        if isinstance(stage, UseStage):
            used |= stage.when.keys()
    for param in pack.params.values():
        used |= arithmetic.names(param.value) if param.value else set()
    for param in pack.params.values():
        if param.name not in used:
            message = f"parameter {param.name} is not used; leave it out"
            yield PackFinding("unused-parameter", "error", pack.file, param.line, message)


def _same_target(pack: Pack) -> Iterator[PackFinding]:
    """No two rules of a stage write one key: the same template is wrong, those that could meet may be."""
    for other, rule in _pairs(pack):
        for one, two in product(rule.targets, other.targets):
            key = meet(one.flipped(), two.flipped(), pack.params)
            if key is not None:
                level: Level = "error" if one.text == two.text else "warning"
                message = f"rule {rule.id}: it writes {key}, as rule {other.id} in line {other.line} does"
                remedy = (
                    "; whichever keys there are: make the names differ"
                    if level == "error"
                    else ("; narrow what one of them captures, if there are such keys")
                )
                yield PackFinding("same-target", level, pack.file, rule.line, message + remedy)
                break


def _layouts(pack: Pack) -> Iterator[PackFinding]:
    """The layouts at the two ends exist, and the examples' keys belong to one of them."""
    ends = [name for name in (pack.source_layout, pack.target_layout) if name is not None]
    layouts = []
    for name in ends:
        try:
            layouts.append(load_layout(name))
        except PackError as e:
            yield PackFinding("unknown-layout", "error", pack.file, 1, e.what)
    if len(layouts) < 2:
        return
    for example in pack.examples:
        for key in (*example.given, *example.expect) if example.fails is None else ():
            if not any(layout.knows(key) for layout in layouts):
                message = f"{key} is no key of the layouts {' and '.join(ends)}"
                yield PackFinding("example-outside-layout", "error", pack.file, example.line, message)


def _exclude(one: Rule, other: Rule) -> bool:
    """Do the two rules' conditions exclude each other?"""
    return any(not one.when[n] & other.when[n] for n in one.when.keys() & other.when.keys())


CHECKS: tuple[Check, ...] = (
    _evidence,
    _examples,
    order_findings,
    _inverse,
    _regexes,
    _unconfirmed,
    _unused_params,
    _overlap,
    _same_target,
    _layouts,
)
