"""A pack -> its inverse, as a pack of its own. ``remap rules invert``.

Rules are turned round and written out; a pack that is used, is used the other way round. Wrappers that came
off are known to the receipt only, so a pack that takes some off is used as a whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from remap.authoring.examples import catalog, plan_example
from remap.authoring.spelling import param_entry, rule_entry, when_entry
from remap.authoring.values import spec_of
from remap.authoring.write import to_yaml
from remap.errors import UsageError
from remap.ops.arithmetic import names
from remap.packs import available
from remap.packs.applying.invert import inverted
from remap.packs.applying.unwrap import NAME
from remap.packs.language.pack import Example, Pack, Rule, RuleStage, Stage, UnwrapStage, UseStage
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
    params = (
        {} if whole else {name: param_entry(p) for name, p in pack.params.items() if name in _needed(pack)}
    )
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
                found = found.union(*(turned.params_used for turned in _turned_round(rule)))
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
        return {**found, "when": when_entry(stage.when)} if stage.when else found
    assert isinstance(stage, RuleStage)
    return {"rules": [rule_entry(turned) for r in stage.rules for turned in _turned_round(r)]}


def _turned_round(rule: Rule) -> Iterator[Rule]:
    """The rules that do it backwards: what is of one direction changes it, and what was added is dropped,
    and added on the way back."""
    if _as_it_stands(rule):
        yield replace(rule, only="forward" if rule.only == "inverse" else "inverse")
        return
    if rule.does == "add":
        yield replace(inverted(rule), only="forward", new=None)
        yield replace(rule, id=f"{rule.id}-again", only="inverse")
        return
    yield inverted(rule)


def _examples(pack: Pack, example: Example) -> Iterator[dict[str, object]]:
    """The example turned round; and as it is, where it shows what one direction has for itself."""
    plan = plan_example(pack, example)
    fired = {r for o in plan.outputs for r in o.rule.split(" > ")} | {d.rule for d in plan.drops}
    if example.inverse or not fired.isdisjoint(
        r.id for r in pack.own_rules if r.only or r.does in ("add", "drop")
    ):
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
