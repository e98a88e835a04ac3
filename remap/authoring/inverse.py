"""A pack -> its inverse, as a pack of its own. ``remap rules invert``.

Rules are turned round and written out; a pack that is used, is used the other way round. Wrappers that came
off are known to the receipt only, so a pack that takes some off is used as a whole.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path

from remap.authoring.examples import catalog, plan_example
from remap.authoring.values import spec_of
from remap.authoring.write import to_yaml
from remap.errors import UsageError
from remap.ops.arithmetic import names
from remap.ops.spelling import spelled
from remap.packs import available
from remap.packs.applying.invert import inverted
from remap.packs.applying.unwrap import NAME
from remap.packs.language.pack import (
    Example,
    Pack,
    Pattern,
    Rule,
    RuleStage,
    Source,
    Stage,
    UnwrapStage,
    UseStage,
    When,
)
from remap.packs.language.template import Capture, Index, Ref, Template, Text
from remap.plan import make_plan


def inverse_text(pack: Pack) -> str:
    """The inverse as YAML. Raises UsageError where there is none."""
    refused = [
        f"{owner.place(r)}: {inverted(r).because}"
        for owner in _all_packs(pack)
        for r in owner.own_rules
        if r.does == "rename" and inverted(r).does == "refuse"
    ]
    if refused:
        raise UsageError(
            "rules without an inverse",
            where=pack.name,
            problems=refused,
            remedy="what they lose is in the original only; keep it",
        )
    return to_yaml(_document(pack))


def _all_packs(pack: Pack) -> Iterator[Pack]:
    """The pack and those that it uses, each once."""
    seen: dict[str, Pack] = {pack.digest: pack}
    waiting = [pack]
    while waiting:
        for used in waiting.pop().used:
            if seen.setdefault(used.digest, used) is used:
                waiting.append(used)
    return iter(seen.values())


def _document(pack: Pack) -> dict[str, object]:
    whole = any(isinstance(s, UnwrapStage) for s in pack.stages)
    ends = {"from": pack.target_layout, "to": pack.source_layout}
    params = {} if whole else {name: _param(pack, name) for name in pack.params if name in _needed(pack)}
    return {
        "remap": 1,
        "pack": f"{pack.name}-inverse",
        "version": pack.version,
        "title": f"The inverse of {pack.name}: {pack.title}",
        **{end: layout for end, layout in ends.items() if layout is not None},
        "evidence": [{"project": pack.name, "note": f"derived from version {pack.version}"}],
        **({"params": params} if params else {}),
        "stages": [{"use": _name(pack), "inverse": True}]
        if whole
        else [_stage(s) for s in reversed(pack.stages)],
        "examples": [made for e in pack.examples if e.fails is None for made in _examples(pack, e)],
    }


def _needed(pack: Pack) -> frozenset[str]:
    """Parameters that the way back needs; a count of parts is not among what is turned round."""
    found: set[str] = set()
    for stage in pack.stages:
        if isinstance(stage, UseStage):
            found |= stage.when.keys()
        elif isinstance(stage, RuleStage):
            for rule in stage.rules:
                found |= (rule if _as_it_stands(rule) else inverted(rule)).params_used
    while (
        more := {n for p in found & pack.params.keys() if (v := pack.params[p].value) for n in names(v)}
        - found
    ):
        found |= more
    return frozenset(found)


def _as_it_stands(rule: Rule) -> bool:
    """Is the rule of one direction only? It is not turned round."""
    return rule.only is not None or rule.does == "drop"


def _name(pack: Pack) -> str:
    """What ``use:`` calls a pack: its name where it is found by it, else its file."""
    return pack.name if pack.name in available() else str(Path(pack.file).resolve())


def _stage(stage: Stage) -> dict[str, object]:
    if isinstance(stage, UseStage):
        found: dict[str, object] = {"use": _name(stage.pack)}
        if stage.direction == "forward":
            found["inverse"] = True
        if stage.given:
            found["with"] = dict(stage.given)
        return {**found, "when": _when(stage.when)} if stage.when else found
    assert isinstance(stage, RuleStage)
    return {"rules": [_rule(r) for r in stage.rules]}


def _when(when: When) -> dict[str, list[str]]:
    return {name: sorted(values) for name, values in when.items()}


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
    undone = rule if _as_it_stands(rule) else inverted(rule)
    common: dict[str, object] = {"optional": True} if rule.optional else {}
    if undone.expect is not None:
        common["expect"] = str(undone.expect)
    if _as_it_stands(rule):
        common["only"] = "forward" if rule.only == "inverse" else "inverse"
    if rule.replaces:
        common["replaces"] = sorted(rule.replaces)
    if rule.when:
        common["when"] = _when(rule.when)
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


def _examples(pack: Pack, example: Example) -> Iterator[dict[str, object]]:
    """The example turned round; and as it is, where it shows what one direction has for itself."""
    plan = plan_example(pack, example)
    fired = {r for o in plan.outputs for r in o.rule.split(" > ")} | {d.rule for d in plan.drops}
    if example.inverse or not fired.isdisjoint(r.id for r in pack.own_rules if r.only or r.does == "drop"):
        yield _as_it_is(example)
    if not example.inverse and example.expect:
        yield _turned(pack, example, dict(plan.steps[0].params))


def _as_it_is(example: Example) -> dict[str, object]:
    found: dict[str, object] = {} if example.inverse else {"inverse": True}
    found |= {"given": dict(example.given), "expect": dict(example.expect)}
    some = {"dropped": example.dropped, "params": example.params, "config": example.config}
    return found | {name: dict(value) for name, value in some.items() if value}


def _turned(pack: Pack, example: Example, params: dict[str, int | str]) -> dict[str, object]:
    """What the way back makes of what comes out. What its keys said of parameters is said by name now."""
    params.pop(NAME, None)
    specs = {key: spec_of(text) for key, text in example.expect.items()}
    given = {**{name: str(value) for name, value in params.items()}, **example.params}
    back = make_plan(catalog(specs, example.config), [pack], inverse=True, params=given, partial=True)
    found = {
        "given": dict(example.expect),
        "expect": {o.key: _spelled_as(example.given.get(o.key, ""), str(o.expr.spec)) for o in back.outputs},
        "dropped": {d.key: d.rule for d in back.drops},
        "params": params,
    }
    return {name: value for name, value in found.items() if value or name in ("given", "expect")}


def _spelled_as(text: str, spec: str) -> str:
    """The spec with the values that it had before."""
    return text if text.partition(" =")[0] == spec else spec
