"""A pack -> its page in Markdown: what it is, its table of names, parameters, evidence, an example.

``remap rules show`` prints it, and the documentation is made of it, so a page is as true as the pack.
"""

from __future__ import annotations

from collections.abc import Iterator

from remap.packs.applying.invert import no_inverse
from remap.packs.language.pack import Example, Pack, Param, Rule, RuleStage, UnwrapStage
from remap.packs.language.template import Capture, Template


def page(pack: Pack) -> str:
    """The page."""
    return "\n".join(_lines(pack)).rstrip() + "\n"


def _lines(pack: Pack) -> Iterator[str]:
    yield f"# {pack.name} {pack.version}"
    yield ""
    yield f"{pack.title}."
    for number, stage in enumerate(pack.stages, 1):
        yield ""
        heading = f"## Stage {number}" if len(pack.stages) > 1 else "## Names"
        yield heading
        yield ""
        if isinstance(stage, RuleStage):
            yield from _table(stage)
        elif isinstance(stage, UnwrapStage):
            yield f"takes off {', '.join(f'`{w}`' for w in stage.wrappers)}, and remembers where they were"
        else:
            given = "".join(f", {k}={v}" for k, v in stage.given.items())
            way = "the inverse of" if stage.direction == "inverse" else "as"
            yield f"{way} `{stage.pack.name}` {stage.pack.version}{given}: {stage.pack.title}"
    for name, table in _tables(pack).items():
        yield from ["", f"## Table {name}", "", "| from | to |", "| --- | --- |"]
        yield from (f"| `{a}` | `{b}` |" for a, b in table)
    if pack.params:
        yield from ["", "## Parameters", ""]
        yield "| name | | where its value comes from |"
        yield "| --- | --- | --- |"
        for param in pack.params.values():
            yield f"| `{param.name}` | {param.about} | {_origin(param)} |"
    yield from ["", "## Inverse", "", _inverse(pack)]
    if pack.evidence:
        yield from ["", "## Evidence", ""]
        for e in pack.evidence:
            parts = (e.project, e.version, e.path, e.url, f"at {e.commit}" if e.commit else "")
            place = " ".join(p for p in parts if p)
            yield f"- {place}" + (f": {e.note}" if e.note else "")
    shown = next((e for e in pack.examples if e.fails is None), None)
    if shown is not None:
        yield from ["", "## Example", "", *_example(shown)]


def _table(stage: RuleStage) -> Iterator[str]:
    yield "| rule | from | to | |"
    yield "| --- | --- | --- | --- |"
    for rule in stage.rules:
        sources = "<br>".join(_code(s.text) for s in rule.sources)
        yield f"| {rule.id} | {sources} | {_target(rule)} | {_remark(rule)} |"


def _tables(pack: Pack) -> dict[str, tuple[tuple[str, str], ...]]:
    """The tables that the templates name, by name."""
    found: dict[str, tuple[tuple[str, str], ...]] = {}
    for rule in pack.own_rules:
        for template in (s for s in rule.sources if isinstance(s, Template)):
            for e in template.elements:
                if isinstance(e, Capture) and e.table and f"{{{e.name}:@" in template.text:
                    name = template.text.partition(f"{{{e.name}:@")[2].partition("}")[0]
                    found[name] = tuple(sorted(e.table))
    return found


def _code(text: str) -> str:
    """Code in a cell: a bar in it would end the cell."""
    return "`" + text.replace("|", "\\|") + "`"


def _target(rule: Rule) -> str:
    if rule.does == "keep":
        return "kept"
    if rule.does == "drop":
        return f"dropped: {rule.because}"
    text = "<br>".join(_code(t.text) for t in rule.targets)
    return f"added: {text}" if rule.does == "add" else text


def _remark(rule: Rule) -> str:
    parts = [o.name for o in rule.ops]
    parts += [f"{rule.only} only"] if rule.only else []
    parts += [f"when {n} is {' or '.join(sorted(v))}" for n, v in rule.when.items()]
    parts += ["optional"] if rule.optional else []
    return ", ".join(parts)


def _origin(param: Param) -> str:
    parts = [f"`{p}` in config.json" for p in param.from_config]
    parts += [f"the number of `{t.text}`" for t in param.or_count]
    parts += [f"dimension {d} of `{t.text}`" for t, d in param.or_shape]
    for choice, templates in param.or_present.items():
        parts.append(f"{choice} where there is {' or '.join(f'`{t.text}`' for t in templates)}")
    if param.value is not None:
        parts.append(f"`{param.value}`")
    if param.choices:
        parts.append(f"one of {', '.join(param.choices)}")
    if param.default is not None:
        parts.append(f"default {param.default}")
    return "; ".join(parts)


def _inverse(pack: Pack) -> str:
    without = [
        f"{r.id} ({reason})"
        for r in pack.all_rules
        if r.does == "rename" and (reason := no_inverse(r)) is not None
    ]
    dropped = [r.id for r in pack.all_rules if r.does == "drop" and r.only != "inverse"]
    text = "Derived." if not without else f"Derived, but for {'; '.join(without)}."
    return text + (f" What {', '.join(dropped)} dropped is not restored." if dropped else "")


def _example(example: Example) -> Iterator[str]:
    yield "```"
    for key, spec in example.given.items():
        yield f"{key}  {spec}"
    yield "->"
    for key, spec in example.expect.items():
        yield f"{key}  {spec}"
    for key, rule in example.dropped.items():
        yield f"{key}  dropped by {rule}"
    yield "```"
