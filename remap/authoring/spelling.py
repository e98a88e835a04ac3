"""Parameters and rules of a pack -> how they stand in YAML. The way back of ``packs.language``."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from remap.errors import UsageError
from remap.ops.spelling import spelled
from remap.packs.language.pack import New, Param, Pattern, Rule, Source, When
from remap.packs.language.template import Capture, Index, Ref, Template, Text

Entry = dict[str, object]
"""A mapping of the YAML."""


def param_entry(param: Param) -> Entry:
    """A parameter."""
    found: Entry = {}
    if param.choices:
        found["choices"] = {c: dict(v) if not isinstance(v, str) else v for c, v in param.choices.items()}
    if param.about:
        found["about"] = param.about
    if param.from_config:
        found["from_config"] = list(param.from_config)
    if param.or_count:
        found["or_count"] = [t.text for t in param.or_count]
    if param.or_present:
        found["or_present"] = {c: [t.text for t in several] for c, several in param.or_present.items()}
    if param.or_shape:
        found["or_shape"] = [{"key": t.text, "dim": d} for t, d in param.or_shape]
    if param.value is not None:
        found["value"] = str(param.value)
    if param.default is not None:
        found["default"] = param.default
    if param.times != 1:
        found["times"] = param.times
    if param.minimum:
        found["min"] = param.minimum
    return found


def when_entry(when: When) -> Mapping[str, list[str]]:
    """A condition."""
    return {name: sorted(values) for name, values in when.items()}


def rule_entry(rule: Rule) -> Entry:
    """A rule. A keep needs no id: the one that it gets has a space."""
    named: Entry = {} if " " in rule.id else {"id": rule.id}
    return {**named, **_does(rule), **_common(rule)}


def _common(rule: Rule) -> Entry:
    found: Entry = {
        "because": rule.because if rule.does == "drop" else None,
        "optional": rule.optional,
        "expect": None if rule.expect is None else str(rule.expect),
        "only": rule.only,
        "replaces": sorted(rule.replaces),
        "when": when_entry(rule.when),
    }
    return {name: value for name, value in found.items() if value}


def _does(rule: Rule) -> Entry:
    if rule.does in ("keep", "drop"):
        return {rule.does: [_source(s) for s in rule.sources]}
    if rule.new is not None:
        return {"add": _read(rule.targets[0]), **_new(rule.new)}
    source, target = rule.sources[0], rule.targets[0]
    if isinstance(source, Pattern):
        assert rule.back is not None
        forward, written = rule.back
        key = "regex" if isinstance(forward, Pattern) else "from"
        back = {key: forward.text, "to": _written(written)}
        return {"regex": source.text, "to": _written(target), "inverse": back}
    known = {n for s in rule.sources if isinstance(s, Template) for n in s.captures}
    sources, targets = [_source(s) for s in rule.sources], [_written(t, known) for t in rule.targets]
    do = {"do": [spelled(op) for op in rule.ops]} if rule.ops else {}
    return {"from": _one(sources), "to": _one(targets), **do}


def _new(new: New) -> Entry:
    """What an added tensor is."""
    fill: object = new.value
    if new.std is not None:
        fill = {"std": new.std, "seed": new.seed}
    elif new.rotary is not None:
        fill = {"rotary": str(new.rotary)}
    found: Entry = {
        "each": {name: str(count) for name, count in new.each.items()},
        "shape": [str(size) for size in new.shape],
        "dtype": None if new.dtype is None else new.dtype.short,
        "fill": fill,
    }
    return {name: value for name, value in found.items() if value or name in ("shape", "fill")}


def _one(texts: list[str]) -> str | list[str]:
    return texts[0] if len(texts) == 1 else texts


def _source(source: Source) -> str:
    return source.text if isinstance(source, Pattern) else _read(source)


def _read(template: Template) -> str:
    """The template as it stands in ``from``: kinds are declared."""
    return "".join(_element(e, declare=True) for e in template.elements)


def _written(template: Template, known: Collection[str] | None = None) -> str:
    """The template as it stands in ``to``: a capture that ``from`` does not know is declared here."""
    elements = template.elements
    return "".join(
        _element(e, declare=known is not None and isinstance(e, Capture) and e.name not in known)
        for e in elements
    )


def _element(e: Text | Capture | Index | Ref, *, declare: bool) -> str:
    if isinstance(e, Text):
        return e.text
    if isinstance(e, Index):
        return f"{{{str(e.tree).strip('()')}}}" if str(e.tree).count("(") == 1 else f"{{{e.tree}}}"
    if isinstance(e, Ref):
        return f"{{{e.param}.{e.field}}}" if e.field else f"{{{e.param}}}"
    if e.name is None:
        return "**" if e.kind == "path" else "*"
    if not declare or e.kind == "segment":
        return f"{{{e.name}}}"
    if e.kind == "names":
        if odd := [name for pair in e.table for name in pair if set(name) & set("|={}")]:
            raise UsageError(
                f"{odd[0]!r} can't stand among the names of a capture",
                remedy="turn the pack round by hand: a table may hold it",
            )
        pairs = "|".join(a if a == b else f"{a}={b}" for a, b in e.table)
        return f"{{{e.name}:{pairs}}}"
    return f"{{{e.name}:{e.kind}}}"
