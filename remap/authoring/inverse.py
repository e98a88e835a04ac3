"""A pack -> its inverse, as a pack of its own. ``remap rules invert``.

Only a pack that uses no ops beside those whose arguments stand in the file can be printed; the inverse
itself is always derived (``--inverse``), and needs no file.
"""

from __future__ import annotations

from remap.authoring.examples import plan_example
from remap.authoring.write import to_yaml
from remap.errors import UsageError
from remap.packs.applying.invert import inverted
from remap.packs.language.pack import Example, Pack, Pattern, Rule, RuleStage
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
    with_ops = [r for r in pack.own_rules if r.ops]
    if with_ops:
        raise UsageError(
            "the inverse of an op is derived, not written",
            where=pack.name,
            problems=[f"{pack.place(r)}: {', '.join(o.name for o in r.ops)}" for r in with_ops],
            remedy="apply the pack with --inverse",
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
            {"rules": [_rule(r) for r in stage.rules if r.does != "drop" or r.only == "inverse"]}
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
    if param.from_config:
        found["from_config"] = list(param.from_config)
    if param.or_count:
        found["or_count"] = [t.text for t in param.or_count]
    if param.or_present:
        found["or_present"] = {c: [t.text for t in several] for c, several in param.or_present.items()}
    if param.default is not None:
        found["default"] = param.default
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
        return {"id": rule.id, undone.does: [s.text for s in undone.sources], **why, **common}
    (source,), (target,) = undone.sources, undone.targets
    if isinstance(source, Pattern):
        assert undone.back is not None
        forward, written = undone.back
        key = "regex" if isinstance(forward, Pattern) else "from"
        back = {key: forward.text, "to": _written(written)}
        return {"id": rule.id, "regex": source.text, "to": _written(target), "inverse": back, **common}
    return {"id": rule.id, "from": _read(source), "to": _written(target), **common}


def _read(template: Template) -> str:
    """The template as it stands in ``from``: kinds are declared."""
    return "".join(_element(e, declare=True) for e in template.elements)


def _written(template: Template) -> str:
    return "".join(_element(e, declare=False) for e in template.elements)


def _element(e: Text | Capture | Index | Ref, *, declare: bool) -> str:
    if isinstance(e, Text):
        return e.text
    if isinstance(e, Index):
        return f"{{{str(e.tree).strip('()')}}}" if str(e.tree).count("(") == 1 else f"{{{e.tree}}}"
    if isinstance(e, Ref):
        return f"{{{e.param}.{e.field}}}" if e.field else f"{{{e.param}}}"
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
