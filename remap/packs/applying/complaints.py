"""What is wrong with a stage's outcome -> one error that says all of it.

Keys that differ only in their numbers are one line: ``layers.0.x (and 23 more like it)``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from remap.errors import AlreadyConverted, PackError, PlanError, RemapError
from remap.ops import arithmetic
from remap.packs.applying.params import Resolved
from remap.packs.applying.stage import Outcome
from remap.packs.language.pack import Direction, Pack, Rule
from remap.packs.language.template import Template
from remap.packs.matching.keyset import KeySet, skeleton
from remap.packs.matching.matcher import Matcher


def grouped(keys: Iterable[str]) -> list[str]:
    """The keys, those of one skeleton on one line."""
    first: dict[str, str] = {}
    count: dict[str, int] = defaultdict(int)
    for key in keys:
        s = skeleton(key)
        first.setdefault(s, key)
        count[s] += 1
    return [key if count[s] == 1 else f"{key} (and {count[s] - 1} more like it)" for s, key in first.items()]


def complain(
    pack: Pack,
    rules: Sequence[Rule],
    outcome: Outcome,
    values: Resolved,
    *,
    partial: bool,
    converted: bool,
    direction: Direction = "forward",
    idle: Iterable[Rule] = (),
) -> None:
    """Raise what is wrong, the most telling kind first. ``partial`` keys need not make rules fire;
    ``converted`` says that the keys are what this pack produces, asked for in that ``direction``. ``idle``
    drop with other parameters."""
    keys = outcome.keys.keys
    if outcome.twice:
        raise _twice(pack, outcome)
    if outcome.unowned and converted:
        forward = direction == "forward"
        raise AlreadyConverted(
            f"the keys have the names that {pack.name} would give them already"
            if forward
            else f"the keys have the names that {pack.name} begins with, and can't be taken back to them",
            where=pack.name,
            problems=grouped(keys[p] for p in outcome.unowned),
            remedy="leave the pack out, or "
            + ("add --inverse to go back" if forward else "leave --inverse out to go forward"),
        )
    if outcome.conflicts:
        raise _conflicts(pack, outcome)
    if outcome.refused:
        raise PlanError(
            "these keys come from rules that have no inverse",
            where=pack.name,
            problems=_by_rule(pack, outcome.refused, keys, reason=True),
            remedy="convert from the original again",
        )
    if outcome.unowned:
        raise _unowned(pack, rules, outcome, values, idle)
    if outcome.unbound:
        raise _unbound(pack, rules, outcome, values)
    if outcome.faults:
        raise PlanError(
            "a key's index can't be computed",
            where=pack.name,
            problems=[f"{keys[p]}: {pack.place(r)}: {what}" for p, r, what in outcome.faults],
        )
    lines = [] if partial else unfired(pack, rules, outcome, values)
    if lines:
        raise PlanError(
            "rules that did not fire as they should",
            where=pack.name,
            problems=lines,
            remedy="is this the right pack? a rule that may match nothing says optional: true",
        )


def _by_rule(
    pack: Pack, found: list[tuple[int, Rule]], keys: list[str], *, reason: bool = False
) -> list[str]:
    by: dict[str, tuple[Rule, list[str]]] = {}
    for place, rule in found:
        by.setdefault(rule.id, (rule, []))[1].append(keys[place])
    lines: list[str] = []
    for rule, mine in by.values():
        why = f": {rule.because}" if reason else ""
        lines += [f"{line}: {pack.place(rule)}{why}" for line in grouped(mine)]
    return lines


def _twice(pack: Pack, outcome: Outcome) -> RemapError:
    rules = sorted({rule.id for _, rule in outcome.twice})
    return AlreadyConverted(
        f"{pack.name} has been applied to these keys before, or they look like it",
        where=pack.name,
        problems=_by_rule(pack, outcome.twice, outcome.keys.keys),
        remedy="leave the pack out, or add --inverse to go back; if it must be applied again, say so: "
        + " ".join(f"--again {r}" for r in rules),
    )


def _conflicts(pack: Pack, outcome: Outcome) -> RemapError:
    by: dict[tuple[str, ...], tuple[tuple[Rule, ...], list[str]]] = {}
    for place, rules in outcome.conflicts:
        by.setdefault(tuple(r.id for r in rules), (rules, []))[1].append(outcome.keys.keys[place])
    lines = [
        f"{line}: {' and '.join(pack.place(r) for r in rules)}"
        for rules, keys in by.values()
        for line in grouped(keys)
    ]
    return PlanError(
        "keys that more than one rule owns",
        where=pack.name,
        problems=lines,
        remedy="narrow one of the rules, or let one say replaces: the other",
    )


def _unowned(
    pack: Pack, rules: Sequence[Rule], outcome: Outcome, values: Resolved, idle: Iterable[Rule]
) -> RemapError:
    keys = [outcome.keys.keys[p] for p in outcome.unowned]
    lines = grouped(keys)
    lines = [line + _nearest(line, rules) for line in lines[:50]] + lines[50:]
    waiting = sorted(
        {n for r in rules for t in r.templates for n in t.unbound(pack.params) if n in values.missing}
    )
    lines += [f"parameter {n} has no value: {values.missing[n]}" for n in waiting]
    return PlanError(
        "keys that no rule owns",
        where=pack.name,
        problems=lines,
        remedy="; ".join(
            [
                *_droppable(keys, idle),
                "add a rule: rename, keep, or drop with a reason; or use a pack for this layout",
            ]
        ),
    )


def _droppable(keys: Sequence[str], idle: Iterable[Rule]) -> Iterator[str]:
    """What parameters would have these keys dropped."""
    for rule in idle:
        matchers = [Matcher(s) for s in rule.sources if isinstance(s, Template)]
        mine = [k for k in keys if any(m.match(k) for m in matchers)]
        if mine:
            said = " ".join(f"-p {name}={min(wanted)}" for name, wanted in rule.when.items())
            yield f"{said} drops {' and '.join(grouped(mine))} ({rule.because})"


def _nearest(line: str, rules: Sequence[Rule]) -> str:
    from rapidfuzz.process import extractOne

    texts = {s.text: r for r in rules for s in r.sources}
    near = extractOne(line.partition(" ")[0], list(texts), score_cutoff=70)
    return f"; nearest is {near[0]} (rule {texts[near[0]].id}, line {texts[near[0]].line})" if near else ""


def _unbound(pack: Pack, rules: Sequence[Rule], outcome: Outcome, values: Resolved) -> RemapError:
    names = sorted(frozenset[str]().union(*outcome.unbound.values()))
    by_id = {r.id: r for r in rules}
    return PlanError(
        "parameters without a value",
        where=pack.name,
        problems=[f"{n}: {values.missing.get(n, 'unknown')}" for n in names]
        + [f"needed by {pack.place(by_id[i])}" for i in outcome.unbound],
        remedy="give it: " + " ".join(f"-p {n}=..." for n in names),
    )


def unfired(pack: Pack, rules: Sequence[Rule], outcome: Outcome, values: Resolved) -> list[str]:
    """The rules that did not fire as they should, one line each."""
    lines: list[str] = []
    for rule in rules:
        fired = outcome.fired[rule.id]
        if rule.does == "add":
            continue
        if not fired and not rule.optional:
            texts = " or ".join(s.text for s in rule.sources)
            lines.append(f"{pack.place(rule)} matched no key: {texts}{_near_key(texts, outcome.keys)}")
        elif rule.expect is not None and (fired or not rule.optional):
            lines += _miscount(pack, rule, fired, values)
    return lines


def _miscount(pack: Pack, rule: Rule, fired: int, values: Resolved) -> list[str]:
    assert rule.expect is not None
    missing = arithmetic.names(rule.expect) - values.numbers.keys()
    if missing:
        return [f"{pack.place(rule)} expects {rule.expect}, and {n} has no value" for n in sorted(missing)]
    try:
        wanted = arithmetic.evaluate(rule.expect, values.numbers)
    except PackError as e:
        return [f"{pack.place(rule)} expects {rule.expect}: {e.what}"]
    if wanted == fired:
        return []
    return [f"{pack.place(rule)} matched {fired} keys; it expects {_counted(rule.expect, wanted)}"]


def _counted(tree: arithmetic.Arithmetic, count: int) -> str:
    return str(count) if isinstance(tree, arithmetic.Num) else f"{tree} = {count}"


def _near_key(text: str, keys: KeySet) -> str:
    from rapidfuzz.process import extractOne

    near = extractOne(text, [g.key for g in keys.groups.values()], score_cutoff=60)
    return f"; nearest is {near[0]}" if near else ""


Collided = Mapping[str, list[tuple[str, Rule]]]
"""Target -> the sources that would get it, each with its rule."""


def collided(pack: Pack, made: Collided) -> dict[str, str]:
    """Target -> which sources would get it, in words."""
    return {
        target: f"from {' and '.join(f'{key} ({pack.place(rule)})' for key, rule in several)}"
        for target, several in made.items()
    }


def collisions(pack: Pack, made: Collided) -> RemapError:
    """Several sources of one target."""
    return PlanError(
        "targets that more than one key would get",
        where=pack.name,
        problems=[f"{target}: {how}" for target, how in collided(pack, made).items()],
        remedy="rename or drop one of them",
    )
