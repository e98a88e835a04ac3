"""One rule as written -> one rule checked: what it owns, what it writes, whether the captures agree."""

from __future__ import annotations

import re
from collections.abc import Mapping

from remap.errors import PackError
from remap.ops import arithmetic
from remap.ops.base import Op
from remap.ops.parts.qkv import NAMES
from remap.ops.registry import read_op
from remap.packs.applying.added import read_added
from remap.packs.applying.gather import check_axes
from remap.packs.language.pack import Param, Rule, Source, When
from remap.packs.language.patterns import read_pattern
from remap.packs.language.schema import RawInverse, RawRule, suggestion
from remap.packs.language.template import Capture, Index, Ref, Tables, Template, parse_template
from remap.packs.matching.matcher import trouble
from remap.partitions.registry import Spelled, read_partition

_ID = re.compile(r"[^\s|>`\"']+")
"""What plans and receipts can join with `` > `` and pages can show in a table."""


def read_rule(raw: RawRule, line: int, params: Mapping[str, Param], tables: Tables) -> Rule:
    """Check one rule. Raises PackError without a place."""
    kinds = [
        n
        for n in ("from", "regex", "keep", "drop", "add")
        if getattr(raw, "from_" if n == "from" else n) is not None
    ]
    if len(kinds) != 1:
        found = f"it has {' and '.join(kinds)}" if kinds else "it has none"
        raise PackError(f"a rule has exactly one of from, regex, keep, drop, add; {found}")
    if raw.id and not _ID.fullmatch(raw.id):
        raise PackError(f"{raw.id!r} is no id", remedy="a word without spaces, quotes, | and >")
    if kinds == ["regex"]:
        return _pattern_rule(raw, line, params, tables)
    if kinds != ["add"] and (raw.each or raw.shape is not None or raw.dtype or raw.fill != "zeros"):
        raise PackError("each, shape, dtype and fill belong to add")
    if kinds == ["from"]:
        return _rename(raw, line, params, tables)
    if kinds == ["add"]:
        return read_added(raw, line, params, tables, _common(raw, params))
    return _keep_or_drop(raw, line, params, tables)


def _listed(value: object, name: str) -> list[str]:
    """One text or a list of them, of the entry ``name``. Raises PackError for an empty list."""
    if value == []:
        raise PackError(f"{name}: an empty list")
    return [value] if isinstance(value, str) else list(value)  # type: ignore[call-overload]


def _parts(value: object, name: str, ops: tuple[Op, ...]) -> list[str]:
    """The templates of one side, in the order in which the ops take them. Raises PackError.

    Parts may be named, ``{q: ..., k: ..., v: ...}``: where an op knows them by name their order is the op's.
    """
    if not isinstance(value, dict):
        return _listed(value, name)
    if not any(o.name in ("fuse_qkv", "split_qkv") for o in ops):
        return _listed(list(value.values()), name)
    if value.keys() != set(NAMES):
        raise PackError(
            f"{name}: parts called {', '.join(value) or 'nothing'}", remedy=f"call them {', '.join(NAMES)}"
        )
    return [value[part] for part in NAMES]


def _common(raw: RawRule, params: Mapping[str, Param]) -> dict[str, object]:
    return {
        "optional": raw.optional,
        "expect": None if raw.expect is None else arithmetic.parse(str(raw.expect)),
        "replaces": frozenset(_listed(raw.replaces, "replaces")) if raw.replaces else frozenset(),
        "because": raw.because,
        "lossy": raw.inverse == "none",
        "only": raw.only,
        "when": read_when(raw.when, params),
        "confirm": raw.confirm,
        "partition": None if raw.partition is None else _partition(raw.partition, params),
    }


def _partition(text: str, params: Mapping[str, Param]) -> Spelled:
    found = read_partition(text)
    unknown = sorted(found.symbols - params.keys())
    if unknown:
        raise PackError(
            f"partition: no parameter is called {unknown[0]!r}{suggestion(unknown[0], list(params))}"
        )
    return found


def read_when(raw: Mapping[str, int | str | list[int | str]], params: Mapping[str, Param]) -> When:
    """Check a condition on parameters. Raises PackError."""
    when: dict[str, frozenset[str]] = {}
    for name, wanted in raw.items():
        if name not in params:
            raise PackError(f"when: no parameter is called {name!r}{suggestion(name, list(params))}")
        values = [str(w) for w in (wanted if isinstance(wanted, list) else [wanted])]
        strange = [v for v in values if params[name].choices and v not in params[name].choices]
        if strange:
            choices = list(params[name].choices)
            raise PackError(f"when: {name} is never {strange[0]!r}{suggestion(strange[0], choices)}")
        strange = [v for v in values if params[name].is_int and not v.removeprefix("-").isdigit()]
        if strange or not values:
            raise PackError(f"when: {name} is a number, never {', '.join(strange) or 'one of nothing'}")
        when[name] = frozenset(values)
    return when


def _keep_or_drop(raw: RawRule, line: int, params: Mapping[str, Param], tables: Tables) -> Rule:
    does = "drop" if raw.drop is not None else "keep"
    if raw.to is not None or raw.do is not None or raw.inverse is not None:
        raise PackError(f"a {does} has no to, do or inverse")
    if does == "drop" and not raw.because:
        raise PackError("it drops without a reason", remedy="say why: because: ...")
    if does == "drop" and not raw.id:
        raise PackError("a drop needs an id, by which it is reported")
    texts = _listed(raw.drop if does == "drop" else raw.keep, does)
    sources = tuple(_source(t, params, tables) for t in texts)
    return Rule(raw.id or f"keep {texts[0]}", line, does, sources, **_common(raw, params))  # type: ignore[arg-type]


def _rename(raw: RawRule, line: int, params: Mapping[str, Param], tables: Tables) -> Rule:
    if not raw.id:
        raise PackError("a rule needs an id")
    if raw.to is None:
        raise PackError("from without to", remedy="say keep: for a key that stays as it is")
    _lossy_with_reason(raw)
    if raw.inverse is not None and raw.inverse != "none":
        raise PackError(
            "inverse: is derived for templates", remedy="leave it out, or say inverse: none with because:"
        )
    ops = read_ops(raw.do)
    sources = tuple(_source(t, params, tables) for t in _parts(raw.from_, "from", ops))
    kinds = {name: c for s in sources for name, c in s.captures.items()}
    targets = tuple(_target(t, params, tables, kinds) for t in _parts(raw.to, "to", ops))
    _sizes_exist(ops, params)
    _captures_agree(sources, targets, ops)
    rule = Rule(raw.id, line, "rename", sources, targets, ops, **_common(raw, params))  # type: ignore[arg-type]
    if ops:
        check_axes(rule)
    return rule


def _lossy_with_reason(raw: RawRule) -> None:
    if raw.inverse == "none" and not raw.because:
        raise PackError("inverse: none without a reason", remedy="say why: because: ...")


def _source(text: str, params: Mapping[str, Param], tables: Tables) -> Template:
    template = parse_template(text, params, tables)
    template = template.with_kinds({n: c for n, c in template.captures.items() if c.typed})
    _refs_exist(template, params)
    names = {e.name: e for e in template.elements if isinstance(e, Capture) and e.name}
    for e in template.elements:
        if isinstance(e, Capture) and e.name and names[e.name] != e:
            raise PackError(f"{text!r}: {e.name!r} is captured in two ways")
        if isinstance(e, Index):
            for name in sorted(e.captures):
                if name in names and names[name].kind != "int":
                    raise PackError(f"{text!r}: {name!r} is no number", remedy=f"write {{{name}:int}}")
    why = trouble(template)
    if why:
        raise PackError(f"{text!r}: {why}")
    return template


def _target(text: str, params: Mapping[str, Param], tables: Tables, kinds: Mapping[str, Capture]) -> Template:
    template = parse_template(text, params, tables)
    _refs_exist(template, params)
    if template.anonymous:
        raise PackError(f"{text!r}: to can't hold *", remedy="capture it in from: {x} or {rest:path}")
    for e in template.elements:
        if isinstance(e, Capture) and e.name and e.typed and e.kind != kinds.get(e.name, e).kind:
            raise PackError(
                f"{text!r}: {e.name!r} has its kind in from already", remedy=f"write {{{e.name}}}"
            )
        if isinstance(e, Capture) and not e.typed and e.name not in kinds:
            raise PackError(f"{text!r}: from captures no {e.name!r}{suggestion(str(e.name), list(kinds))}")
        if isinstance(e, Index):
            for name in sorted(e.captures):
                if name not in kinds:
                    raise PackError(f"{text!r}: from captures no {name!r}{suggestion(name, list(kinds))}")
                if kinds[name].kind != "int":
                    raise PackError(
                        f"{text!r}: {name!r} is no number", remedy=f"write {{{name}:int}} in from"
                    )
    return template.with_kinds(kinds)


def _refs_exist(template: Template, params: Mapping[str, Param]) -> None:
    for e in template.elements:
        if isinstance(e, Ref):
            choice = next(iter(params[e.param].choices.values()), None)
            fields = list(choice) if isinstance(choice, Mapping) else []
            if e.field is None and fields:
                raise PackError(f"{template.text!r}: say which name: {{{e.param}.{fields[0]}}}")
            if e.field is not None and e.field not in fields:
                raise PackError(
                    f"{template.text!r}: {e.param} carries no {e.field!r}{suggestion(e.field, fields)}"
                )


def _sizes_exist(ops: tuple[Op, ...], params: Mapping[str, Param]) -> None:
    for op in ops:
        for name in sorted(op.symbols):
            if name not in params:
                raise PackError(f"{op.name}: no parameter is called {name!r}{suggestion(name, list(params))}")
            if params[name].choices:
                raise PackError(f"{op.name}: the parameter {name!r} is a name, no number")


def _captures_agree(
    sources: tuple[Template, ...], targets: tuple[Template, ...], ops: tuple[Op, ...]
) -> None:
    if any(s.anonymous for s in sources):
        raise PackError("from holds *, so its keys would become one", remedy="capture it: {x} or {rest:path}")
    if ops:
        return
    if len(sources) > 1 or len(targets) > 1:
        raise PackError("several keys on one side, and no do: says what is done to them")
    unused = sources[0].captures.keys() - targets[0].captures.keys()
    if unused:
        raise PackError(
            f"{', '.join(sorted(unused))} is captured and not written: keys that differ only there collide",
            remedy="write it in to:, or join the keys with do:",
        )


def read_ops(do: object) -> tuple[Op, ...]:
    """The ops of a rule: one or a list, each a name or ``{name: arguments}``."""
    if do is None:
        return ()
    steps: list[object] = do if isinstance(do, list) else [do]
    ops: list[Op] = []
    for step in steps:
        if isinstance(step, str):
            ops.append(read_op(step, {}))
            continue
        assert isinstance(step, dict)
        if not step:
            raise PackError("do: an empty step", remedy="name an op")
        if len(step) != 1:
            raise PackError(f"do: one op a step; this has {', '.join(step)}", remedy="write them as a list")
        ((name, arguments),) = step.items()
        if not isinstance(arguments, (dict, type(None))):
            raise PackError(f"do: {name}: its arguments are a mapping")
        ops.append(read_op(name, arguments or {}))
    return tuple(ops)


def _pattern_rule(raw: RawRule, line: int, params: Mapping[str, Param], tables: Tables) -> Rule:
    if not raw.id:
        raise PackError("a rule needs an id")
    if not isinstance(raw.to, str):
        raise PackError("regex: needs a to: template")
    if raw.do is not None:
        raise PackError("regex: only renames", remedy="use from: with a template")
    pattern = read_pattern(raw.regex or "")
    kinds = {name: Capture(name, "path", typed=False) for name in pattern.groups}
    target = _target(raw.to, params, tables, kinds)
    back: tuple[Source, Template] | None = None
    if raw.inverse == "none":
        _lossy_with_reason(raw)
    elif raw.inverse is None:
        raise PackError(
            "a regex has no inverse of its own",
            remedy="say inverse: {regex, to}, or inverse: none with because:",
        )
    else:
        back = _back(raw, params, tables)
    return Rule(raw.id, line, "rename", (pattern,), (target,), back=back, **_common(raw, params))  # type: ignore[arg-type]


def _back(raw: RawRule, params: Mapping[str, Param], tables: Tables) -> tuple[Source, Template]:
    inverse = raw.inverse
    assert isinstance(inverse, RawInverse)
    if (inverse.regex is None) == (inverse.from_ is None):
        raise PackError("inverse: has either regex or from")
    if inverse.regex is not None:
        pattern = read_pattern(inverse.regex)
        kinds = {name: Capture(name, "path", typed=False) for name in pattern.groups}
        return pattern, _target(inverse.to, params, tables, kinds)
    source = _source(inverse.from_ or "", params, tables)
    return source, _target(inverse.to, params, tables, source.captures)
