"""Tensors that no source has: the rule as written -> checked, and checked -> made.

    - id: no-bias
      add: "layers.{i:int}.attention.bias"
      each: {i: layers}
      shape: [hidden]
      fill: zeros                # ones, a number, {std: 0.02, seed: 1}, or {rotary: base}

The way back drops them: what was added says nothing about the source.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from math import inf, isfinite, prod
from typing import Any

import msgspec

from remap.dtypes import DType, dtype
from remap.errors import PackError, PlanError, UsageError
from remap.expr import Concat, Constant, Expr, Normal
from remap.ops import arithmetic
from remap.ops.arithmetic import Arithmetic
from remap.packs.applying.gather import Made
from remap.packs.applying.params import Resolved
from remap.packs.language.pack import New, Pack, Param, Rule
from remap.packs.language.schema import RawNormal, RawRotary, RawRule
from remap.packs.language.template import Capture, Tables, Template, parse_template
from remap.packs.matching.rendering import write_one
from remap.types import TensorSpec

MOST = 1_000_000
"""How many tensors one rule may add: more is a count that went wrong."""
OTHER = "give the parameters other values, with -p name=value"


def read_added(
    raw: RawRule, line: int, params: Mapping[str, Param], tables: Tables, common: Mapping[str, Any]
) -> Rule:
    """Check a rule that adds. Raises PackError without a place."""
    if not raw.id:
        raise PackError("a rule needs an id")
    if raw.to is not None or raw.do is not None or raw.inverse is not None:
        raise PackError("an add has no to, do or inverse")
    if raw.shape is None:
        raise PackError("add needs shape: a list of sizes")
    template = parse_template(raw.add or "", params, tables)
    counted = {n for n, c in template.captures.items() if c.kind == "int"}
    if counted != raw.each.keys():
        raise PackError(f"{raw.add!r}: each: must count {', '.join(sorted(counted)) or 'nothing'}")
    if template.anonymous or any(c.kind not in ("int", "names") for c in template.captures.values()):
        raise PackError(f"{raw.add!r}: add lists its keys", remedy="use {i:int} and {p:one|two} only")
    each = {name: arithmetic.parse(str(count)) for name, count in raw.each.items()}
    shape = tuple(arithmetic.parse(str(s)) for s in raw.shape)
    new = _new(raw, each, shape)
    trees = (*each.values(), *shape, *((new.rotary,) if new.rotary else ()))
    for name in sorted(frozenset[str]().union(*map(arithmetic.names, trees)) - params.keys()):
        raise PackError(f"no parameter is called {name!r}")
    return Rule(raw.id, line, "add", (), (template,), new=new, **common)


def _new(raw: RawRule, each: Mapping[str, Arithmetic], shape: tuple[Arithmetic, ...]) -> New:
    try:
        kind = None if raw.dtype is None else dtype(raw.dtype)
    except UsageError as e:
        raise PackError(f"dtype: {e.what}", remedy=e.remedy) from None
    if isinstance(raw.fill, dict):
        return _made_of(raw.fill, New(each, shape, kind, 0.0))
    value = {"zeros": 0.0, "ones": 1.0}.get(raw.fill) if isinstance(raw.fill, str) else raw.fill
    if not isfinite(value or 0.0):
        raise PackError("fill: a number that is too large")
    return New(each, shape, kind, float(value or 0.0))


def _made_of(fill: Mapping[str, Any], plain: New) -> New:
    """Values that differ from element to element."""
    try:
        if "rotary" not in fill:
            normal = msgspec.convert(fill, RawNormal)
            if not 0 < normal.std < inf:
                raise PackError(f"fill: a standard deviation of {normal.std:g}", remedy="more than 0")
            return replace(plain, std=normal.std, seed=normal.seed)
        base = msgspec.convert(fill, RawRotary).rotary
    except msgspec.ValidationError as e:
        raise PackError(f"fill: {e}", remedy="write {std: 0.02, seed: 1} or {rotary: base}") from None
    if len(plain.shape) != 1:
        raise PackError("fill: rotary frequencies have one dimension")
    return replace(plain, rotary=arithmetic.parse(str(base)))


def added(pack: Pack, rules: Iterable[Rule], values: Resolved, exprs: Sequence[Expr]) -> list[Made]:
    """What the rules add after the keys that there are. Raises PlanError for a size without a value."""
    made: list[Made] = []
    for rule in rules:
        if rule.new is not None and rule.does == "add":
            kind = rule.new.dtype or _usual(exprs)
            shape = tuple(_size(pack, rule, s, values) for s in rule.new.shape)
            spec = TensorSpec(kind, shape)
            for key in _keys(pack, rule, _bound(pack, rule, values), values):
                made.append(Made(len(exprs), key, _tensor(pack, rule, rule.new, spec, key, values), rule))
    return made


def _bound(pack: Pack, rule: Rule, values: Resolved) -> Template:
    try:
        return rule.targets[0].bind(values.values)
    except PackError as e:
        raise PlanError(e.what, where=pack.place(rule), remedy=OTHER) from None


def _tensor(pack: Pack, rule: Rule, new: New, spec: TensorSpec, key: str, values: Resolved) -> Expr:
    if new.rotary is not None:
        base = _size(pack, rule, new.rotary, values)
        if not base or not spec.dtype.is_float:
            raise PlanError(f"rotary frequencies of base {base} as {spec.dtype.name}", where=pack.place(rule))
        return _frequencies(spec, base)
    if not spec.dtype.holds(new.value) or (new.std is not None and not spec.dtype.is_float):
        what = f"{new.value:g}" if new.std is None else "a random value"
        raise PlanError(
            f"{spec.dtype.name} does not hold {what}",
            where=pack.place(rule),
            remedy="say another dtype: or fill:",
        )
    if new.std is None:
        return Constant(spec, new.value)
    import xxhash

    return Normal(spec, new.std, xxhash.xxh64_intdigest(f"{new.seed}:{key}".encode()))


def _frequencies(spec: TensorSpec, base: int) -> Expr:
    """``1 / base ** (2k / 2n)`` in single precision, as models compute it."""
    import numpy as np

    one = TensorSpec(spec.dtype, (1,))
    powers = np.arange(spec.numel, dtype=np.float32) / np.float32(max(spec.numel, 1))
    values = np.float32(1) / np.power(np.float32(base), powers)
    return Concat(tuple(Constant(one, float(v)) for v in values)) if spec.numel else Constant(spec)


def _usual(exprs: Sequence[Expr]) -> DType:
    """The floating-point type that most tensors have."""
    counts = Counter(e.spec.dtype for e in exprs if e.spec.dtype.is_float)
    return counts.most_common(1)[0][0] if counts else dtype("float32")


def _keys(pack: Pack, rule: Rule, template: Template, values: Resolved) -> Iterator[str]:
    assert rule.new is not None
    counts = {n: min(_size(pack, rule, c, values), MOST + 1) for n, c in rule.new.each.items()}
    choices = {n: [str(k) for k in range(count)] for n, count in counts.items()}
    for e in template.elements:
        if isinstance(e, Capture) and e.table and e.name is not None:
            choices[e.name] = [left for left, _ in e.table]
    if prod(map(len, choices.values())) > MOST:
        raise PlanError(
            f"more than {MOST} new tensors", where=pack.place(rule), remedy="is a parameter too large?"
        )
    for several in product(*choices.values()):
        yield write_one(template, dict(zip(choices, several, strict=True)))


def _size(pack: Pack, rule: Rule, tree: Arithmetic, values: Resolved) -> int:
    missing = sorted(arithmetic.names(tree) - values.numbers.keys())
    if missing:
        raise PlanError(
            "a parameter without a value",
            where=pack.place(rule),
            problems=[f"{n}: {values.missing.get(n, 'it is no number')}" for n in missing],
            remedy="give it: " + " ".join(f"-p {n}=..." for n in missing),
        )
    said = ", ".join(f"{n} = {values.numbers[n]}" for n in sorted(arithmetic.names(tree)))
    try:
        found = arithmetic.evaluate(tree, values.numbers)
    except PackError as e:
        raise PlanError(f"{e.what}, with {said}", where=pack.place(rule), remedy=OTHER) from None
    if found < 0:
        raise PlanError(f"{tree} is {found}, with {said}", where=pack.place(rule), remedy=OTHER)
    return found
