"""Rules and bound parameters -> who owns the keys of a skeleton.

Each rule looks at one key a skeleton (see ``matching``). What they say depends on the keys' numbers only
where a template holds numbers; the decision among those that match is taken once for each set of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Union

from remap.errors import PackError, PlanError
from remap.packs.language.pack import Pattern, Rule
from remap.packs.language.patterns import PatternMatcher
from remap.packs.language.template import Template
from remap.packs.matching.keyset import Group, Rows
from remap.packs.matching.matcher import EACH, Hit, Matcher


@dataclass(frozen=True)
class Bound:
    """A rule with its parameters put in.

    matchers  one a source; None for a source whose parameters have no value
    targets   what it writes
    unbound   parameters without a value in the targets and ops
    """

    rule: Rule
    matchers: tuple[Matcher | PatternMatcher | None, ...]
    targets: tuple[Template, ...]
    unbound: frozenset[str]


@dataclass(frozen=True, slots=True)
class Claim:
    """A rule that matches, by its source number ``part``, and how."""

    bound: Bound
    part: int
    hit: Hit


@dataclass(frozen=True, slots=True)
class Conflict:
    """Rules that match the same key, with none that wins."""

    rules: tuple[Rule, ...]


Verdict = Union[Claim, Conflict, None]
_Look = tuple[Bound, int, Union[Hit, Literal["each"]]]


def bind(
    rules: Sequence[Rule], values: Mapping[str, object], params: Mapping[str, object], file: str
) -> list[Bound]:
    """The rules with ``values`` put in. ``params`` are all that the pack declares. Raises PlanError where
    these values give a template no number."""
    done: list[Bound] = []
    problems: list[str] = []
    for rule in rules:
        try:
            done.append(_bind(rule, values, params, file))
        except PackError as e:
            problems.append(f"{file}:{rule.line} (rule {rule.id}): {e.what}")
    if problems:
        raise PlanError(
            "templates whose numbers can't be worked out",
            where=file,
            problems=problems,
            remedy="give the parameters other values, with -p name=value",
        )
    return done


def _bind(rule: Rule, values: Mapping[str, object], params: Mapping[str, object], file: str) -> Bound:
    matchers: list[Matcher | PatternMatcher | None] = []
    for source in rule.sources:
        if isinstance(source, Pattern):
            matchers.append(PatternMatcher(source, f"{file}:{rule.line} (rule {rule.id})"))
            continue
        bound = source.bind(values)
        matchers.append(None if bound.unbound(params) else Matcher(bound))
    targets = tuple(t.bind(values) for t in rule.targets)
    sizes = frozenset[str]().union(*(o.symbols for o in rule.ops)) - values.keys()
    unbound = sizes.union(*(t.unbound(params) for t in targets))
    return Bound(rule, tuple(matchers), targets, unbound)


def owners(bounds: Sequence[Bound], group: Group, keys: Sequence[str]) -> Iterator[tuple[Verdict, Rows]]:
    """Who owns the keys of a skeleton: verdicts, and the keys that each is about."""
    rows = group.rows
    sure: list[Claim] = []
    each: list[tuple[Bound, int]] = []
    unsure: list[tuple[Claim, list[bool]]] = []
    for bound, part, hit in _looks(bounds, group):
        if not isinstance(hit, Hit):
            each.append((bound, part))
            continue
        accepted = _accepted(hit, rows)
        if accepted is None:
            sure.append(Claim(bound, part, hit))
        elif any(accepted):
            unsure.append((Claim(bound, part, hit), accepted))
    if not each and not unsure:
        yield _decide(sure), rows
    elif not each:
        masks: dict[tuple[bool, ...], list[int]] = {}
        for row, mask in enumerate(zip(*(accepted for _, accepted in unsure), strict=True)):
            masks.setdefault(mask, []).append(row)
        for mask, some in masks.items():
            yield _decide(sure + [c for (c, _), ok in zip(unsure, mask, strict=True) if ok]), rows.pick(some)
    else:
        for row, place in enumerate(rows.places):
            claims = sure + [c for c, accepted in unsure if accepted[row]]
            for bound, part in each:
                single = _single(bound.matchers[part], keys[place])
                if single is not None:
                    claims.append(Claim(bound, part, single))
            yield _decide(claims), rows.pick([row])


def _accepted(hit: Hit, rows: Rows) -> list[bool] | None:
    """Which of the keys the hit's checks accept; None for all of them."""
    columns = [c for c in (check.column(rows) for check in hit.checks) if not all(c)]
    if not columns:
        return None
    return columns[0] if len(columns) == 1 else [all(several) for several in zip(*columns, strict=True)]


def _looks(bounds: Sequence[Bound], group: Group) -> Iterator[_Look]:
    for bound in bounds:
        for part, matcher in enumerate(bound.matchers):
            if isinstance(matcher, PatternMatcher):
                yield bound, part, EACH
            elif matcher is not None:
                hit = matcher.look(group.key, group.slots)
                if hit is not None:
                    yield bound, part, hit


def _single(matcher: Matcher | PatternMatcher | None, key: str) -> Hit | None:
    if isinstance(matcher, Matcher):
        return matcher.match(key)
    found = None if matcher is None else matcher.match(key)
    return None if found is None else Hit((), {n: (text,) for n, text in found.items()}, {})


def _decide(claims: list[Claim]) -> Verdict:
    """One claim: a rule that another replaces yields to it, a keep yields to what transforms."""
    first: dict[str, Claim] = {}
    for claim in claims:
        first.setdefault(claim.bound.rule.id, claim)
    replaced = frozenset[str]().union(*(c.bound.rule.replaces for c in first.values()))
    left = [c for c in first.values() if c.bound.rule.id not in replaced]
    if len(left) > 1 and any(c.bound.rule.does != "keep" for c in left):
        left = [c for c in left if c.bound.rule.does != "keep"]
    if len(left) > 1:
        return Conflict(tuple(c.bound.rule for c in left))
    return left[0] if left else None
