"""A pack -> its inverse, as a pack of its own. ``remap rules invert``.

A pack that uses others, or that takes wrappers off, can't be printed; the inverse itself is always derived
(``--inverse``), and needs no file.
"""

from __future__ import annotations

from collections.abc import Collection

from remap.authoring.examples import plan_example
from remap.authoring.write import to_yaml
from remap.errors import UsageError
from remap.ops.spelling import spelled
from remap.packs.applying.invert import inverted
from remap.packs.language.pack import Example, Pack, Pattern, Rule, RuleStage, Source
from remap.packs.language.template import Capture, Index, Ref, Template, Text


def inverse_text(pack: Pack) -> str:
    """The inverse as YAML. Raises UsageError where it can't be written down."""
    if pack.used:
        raise UsageError(
            "a pack that uses others is inverted with them",
            where=pack.name,
            remedy="apply it with --inverse, or invert " + ", ".join(p.name for p in pack.used),
        )
    refused = [r for r in pack.own_rules if r.does == "rename" and inverted(r).does == "refuse"]
    if refused:
        raise UsageError(
            "rules without an inverse",
            where=pack.name,
            problems=[f"{pack.place(r)}: {inverted(r).because}" for r in refused],
        )
    return to_yaml(_document(pack))


def _document(pack: Pack) -> dict[str, object]:
    return {
        "remap": 1,
        "pack": f"{pack.name}-inverse",
        "version": pack.version,
        "title": f"The inverse of {pack.name}: {pack.title}",
        "evidence": [{"project": pack.name, "note": f"derived from version {pack.version}"}],
        "params": {p.name: _param(pack, p.name) for p in pack.params.values()},
        "stages": [
            {"rules": [_rule(r) for r in stage.rules if r.only != "forward" and (r.does != "drop" or r.only)]}
            for stage in reversed(pack.stages)
            if isinstance(stage, RuleStage)
        ],
        "examples": [
            _example(pack, e) for e in pack.examples if e.fails is None and e.expect and not e.inverse
        ],
    }


def _param(pack: Pack, name: str) -> dict[str, object]:
    param = pack.params[name]
    found: dict[str, object] = {}
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
    if param.minimum:
        found["min"] = param.minimum
    return found


def _rule(rule: Rule) -> dict[str, object]:
    undone = rule if rule.only == "inverse" else inverted(rule)
    common: dict[str, object] = {"optional": True} if rule.optional else {}
    if rule.replaces:
        common["replaces"] = sorted(rule.replaces)
    if rule.when:
        common["when"] = {n: sorted(v) for n, v in rule.when.items()}
    if undone.does in ("keep", "drop"):
        why = {"because": undone.because} if undone.does == "drop" else {}
        return {"id": rule.id, undone.does: [_source(s) for s in undone.sources], **why, **common}
    source, target = undone.sources[0], undone.targets[0]
    if isinstance(source, Pattern):
        assert undone.back is not None
        forward, written = undone.back
        key = "regex" if isinstance(forward, Pattern) else "from"
        back = {key: forward.text, "to": _written(written)}
        return {"id": rule.id, "regex": source.text, "to": _written(target), "inverse": back, **common}
    known = {n for s in undone.sources if isinstance(s, Template) for n in s.captures}
    sources, targets = [_source(s) for s in undone.sources], [_written(t, known) for t in undone.targets]
    do = {"do": [spelled(op) for op in undone.ops]} if undone.ops else {}
    return {"id": rule.id, "from": _one(sources), "to": _one(targets), **do, **common}


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
        pairs = "|".join(a if a == b else f"{a}={b}" for a, b in e.table)
        return f"{{{e.name}:{pairs}}}"
    return f"{{{e.name}:{e.kind}}}"


def _example(pack: Pack, example: Example) -> dict[str, object]:
    """The example turned round; what its keys said of parameters is said by name now."""
    params = dict(plan_example(pack, example).steps[0].params)
    given = {k: v for k, v in example.given.items() if k not in example.dropped}
    found: dict[str, object] = {"given": dict(example.expect), "expect": given}
    return {**found, "params": params} if params else found
