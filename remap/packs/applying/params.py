"""A pack's parameters -> their values for these keys, and where each came from.

In order: what the user says (``-p``), what the pack that uses this one says (``with:``), what the source's
receipt remembers, config.json, what the keys show (a count, a name that is present), the default.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from itertools import islice
from math import isclose, isfinite

from remap.errors import PackError, PlanError, UsageError
from remap.ops import arithmetic
from remap.packs.language.pack import Pack, Param, When
from remap.packs.language.schema import suggestion
from remap.packs.language.template import Template
from remap.packs.matching.keyset import KeySet
from remap.packs.matching.matcher import Hit, Matcher
from remap.types import TensorSpec

DIGITS = 15
"""Of a number, at most: no size and no count has more."""

SHOWN = 8
"""How many missing numbers are named."""

Specs = Callable[[int], TensorSpec]


@dataclass
class Resolved:
    """Values of one pack's parameters.

    values   what templates get: a number, a name, or the names that a choice carries
    spelled  what a receipt remembers: the number, or the choice
    origins  where each came from, in words
    missing  why a parameter has none
    """

    values: dict[str, object] = field(default_factory=dict)
    spelled: dict[str, int | str] = field(default_factory=dict)
    origins: dict[str, str] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)

    def hold(self, when: When) -> bool:
        """Do the conditions hold? One on a parameter without a value does not."""
        return all(str(self.spelled.get(name, "")) in wanted for name, wanted in when.items())

    @property
    def numbers(self) -> dict[str, int]:
        """Those that are numbers."""
        return {k: v for k, v in self.spelled.items() if isinstance(v, int)}


@dataclass(frozen=True)
class Given:
    """What is known before the keys are looked at."""

    explicit: Mapping[str, str] = field(default_factory=dict)
    remembered: Mapping[str, object] = field(default_factory=dict)
    config: Mapping[str, object] = field(default_factory=dict)


def resolve(
    pack: Pack, keys: KeySet, given: Given, with_: Mapping[str, str], specs: Specs | None = None
) -> Resolved:
    """The values of ``pack``'s own parameters. One may be missing: perhaps no rule needs it.

    ``specs`` gives those of the keys by place; without them no parameter comes from a shape.
    """
    done = Resolved()
    waiting = dict(pack.params)
    while waiting:
        ready = [p for p in waiting.values() if p.value is None or _needs(p).isdisjoint(waiting)]
        for param in ready:
            del waiting[param.name]
            found = _find(pack, param, keys, given, with_, specs) or _computed(pack, param, done)
            if found is None:
                done.missing[param.name] = _why(param, done.missing)
                continue
            value, done.origins[param.name] = found
            done.spelled[param.name] = value
            done.values[param.name] = param.choices[str(value)] if param.choices else value
    return done


def _needs(param: Param) -> frozenset[str]:
    """The parameters that its value is computed from."""
    return frozenset() if param.value is None else arithmetic.names(param.value)


def _computed(pack: Pack, param: Param, done: Resolved) -> tuple[int | str, str] | None:
    """Its value, worked out of those of others."""
    if param.value is None or not _needs(param) <= done.numbers.keys():
        return None
    try:
        number = arithmetic.evaluate(param.value, done.numbers)
    except PackError as e:
        given = ", ".join(f"{n} = {done.numbers[n]}" for n in sorted(_needs(param)))
        raise UsageError(f"{e.what}, with {given}", where=f"parameter {param.name} of {pack.name}") from None
    return _typed(pack, param, number, str(param.value)), str(param.value)


def _find(
    pack: Pack,
    param: Param,
    keys: KeySet,
    given: Given,
    with_: Mapping[str, str],
    specs: Specs | None,
) -> tuple[int | str, str] | None:
    name = param.name
    if name in given.explicit:
        return _typed(pack, param, given.explicit[name], f"-p {name}={given.explicit[name]}"), "given"
    if name in with_:
        return _typed(pack, param, with_[name], "with:"), "set by the pack that uses it"
    remembered = recall(given.remembered, pack, name)
    if remembered is not None:
        return _typed(pack, param, remembered, "the receipt"), "remembered from the receipt"
    for path in param.from_config:
        value = _at(given.config, path)
        if value is not None:
            if isinstance(value, (int, float)) and not isinstance(value, bool) and param.times != 1:
                value = _times(value, param.times)
            return _typed(pack, param, value, f"config.json, {path}"), f"{path} in config.json"
    for template in param.or_count:
        count = distinct(template, keys)
        if count:
            return _typed(pack, param, count, template.text), f"counted {template.text}"
    for template, dim in param.or_shape:
        size = None if specs is None else _size(template, dim, keys, specs)
        if size is not None:
            return _typed(pack, param, size, template.text), f"dimension {dim} of {template.text}"
    for choice, templates in param.or_present.items():
        for template in templates:
            if distinct(template, keys, most=1):
                return choice, f"found {template.text}"
    if param.default is not None:
        return param.default, "default"
    return None


def _times(value: float, times: int) -> float:
    """The product; a whole number, where only the rounding of a fraction keeps it from being one."""
    found = value * times
    return round(found) if isfinite(found) and isclose(found, round(found), rel_tol=1e-12) else found


def recall(remembered: Mapping[str, object], pack: Pack, name: str) -> object:
    """What a receipt says of a pack's parameter; None where it says nothing."""
    return remembered.get(f"{pack.name}:{name}", remembered.get(name))


def _size(template: Template, dim: int, keys: KeySet, specs: Specs) -> int | None:
    """The size that all matches have; None where there is none, or they differ."""
    matcher = Matcher(template)
    found: set[int] = set()
    for group in keys.groups.values():
        if matcher.could(group.key):
            for place in group.rows.places:
                if matcher.match(keys.keys[place]) and dim < len(specs(place).shape):
                    found.add(specs(place).shape[dim])
    return found.pop() if len(found) == 1 else None


def _typed(pack: Pack, param: Param, value: object, origin: str) -> int | str:
    try:
        return check_value(param, value)
    except PackError as e:
        where = f"{origin}, parameter {param.name} of {pack.name}"
        raise UsageError(e.what, where=where, remedy=e.remedy) from None


def check_value(param: Param, value: object) -> int | str:
    """The number or choice that ``value`` is. Raises PackError, without a place, where it is none."""
    if param.choices:
        text = str(value)
        text = text.lower() if text in ("True", "False") else text  # as YAML and JSON spell it
        if text not in param.choices:
            raise PackError(
                f"{value!r} is not one of its choices{suggestion(text, list(param.choices))}",
                remedy=f"use one of {', '.join(param.choices)}",
            )
        return text
    text = str(int(value) if isinstance(value, float) and value.is_integer() else value)
    if isinstance(value, bool) or not text.isascii() or not text.removeprefix("-").isdigit():
        raise PackError(f"{value!r} is no whole number")
    if len(text.lstrip("-")) > DIGITS:
        raise PackError(f"a number of {len(text)} digits; {DIGITS} are allowed")
    if int(text) < param.minimum:
        raise PackError(f"{text} is less than {param.minimum}")
    return int(text)


def _at(config: Mapping[str, object], path: str) -> object:
    value: object = config
    for step in path.split("."):
        if not isinstance(value, Mapping) or step not in value:
            return None
        value = value[step]
    return value


def _why(param: Param, missing: Mapping[str, str]) -> str:
    tried = [f"config.json has no {p}" for p in param.from_config]
    tried += [f"no key matches {t.text}" for t in param.or_count]
    tried += [f"{t.text} shows no one size of dimension {d}" for t, d in param.or_shape]
    tried += [f"no key matches {t.text}" for several in param.or_present.values() for t in several]
    lacking = sorted(n for n in _needs(param) if n in missing)
    tried += [f"{param.value} needs {n} ({missing[n]})" for n in lacking]
    names = sorted(n for n in _needs(param) if n not in missing)
    if names and not lacking:
        tried.append(f"{param.value} needs numbers: {', '.join(names)}")
    return ", ".join(tried) or "it has no default"


def distinct(template: Template, keys: KeySet, most: int | None = None) -> int:
    """How many different captures ``template`` finds among the keys, counted up to ``most``."""
    return len(captured(template, keys, most))


def check_counts(pack: Pack, keys: KeySet) -> None:
    """What is counted is complete from 0: layers 0, 1, 2 and 5 are not four layers. Raises PlanError.

    Looked at wherever a parameter may be counted, also where its value came from elsewhere.
    """
    problems: list[str] = []
    for param in pack.params.values():
        for template in param.or_count:
            numbers = {int(c) for (c,) in captured(template, keys)} if template.numbered else set()
            if not numbers:
                continue
            gaps = list(islice((n for n in range(max(numbers)) if n not in numbers), SHOWN + 1))
            if gaps:
                problems.append(f"{template.text}: {len(numbers)} are there, without {_few(gaps)}")
            break
    if problems:
        raise PlanError(
            "the checkpoint is not whole",
            where=pack.name,
            problems=problems,
            remedy="convert the whole checkpoint: some of its files are missing, or belong to another",
        )


def _few(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers[:SHOWN])) + ", ..." * (len(numbers) > SHOWN)


def captured(template: Template, keys: KeySet, most: int | None = None) -> set[tuple[str, ...]]:
    """The different captures, each in the order of their names."""
    matcher = Matcher(template)
    names = sorted(template.captures)
    found: set[tuple[str, ...]] = set()
    for group in keys.groups.values():
        hit = matcher.look(group.key, group.slots)
        if hit is None:
            continue
        if not isinstance(hit, Hit):
            singles = (matcher.match(keys.keys[place]) for place in group.rows.places)
            found |= {tuple(one.reading(n).at(()) for n in names) for one in singles if one is not None}
        else:
            accepted = [check.column(group.rows) for check in hit.checks]
            captured = [hit.reading(n).column(group.rows) for n in names]
            for row in range(len(group.rows.places)):
                if all(column[row] for column in accepted):
                    found.add(tuple(column[row] for column in captured))
        if most is not None and len(found) >= most:
            break
    return found


def check_explicit(packs: tuple[Pack, ...], explicit: Mapping[str, str], spare: Collection[str] = ()) -> None:
    """Raise UsageError for ``-p`` names that no pack of the chain has, and that are not ``spare``."""
    known = sorted(frozenset[str](spare).union(*(p.all_params for p in packs)))
    strange = [n for n in explicit if n not in known]
    if strange:
        raise UsageError(
            "; ".join(f"no pack here has a parameter {n!r}{suggestion(n, known)}" for n in strange),
            remedy=f"there are: {', '.join(known)}" if known else None,
        )
