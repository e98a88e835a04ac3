"""Packs that are wrong, each in a way of its own: one message names the line, the cause and the fix.

The mistakes are those of public reports against rename engines (substring replacement, chains, collisions,
double application, groups that shift), and what lint is there for. A body begins in line 5.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import pytest
from packs.language import catalog, pack

from remap.authoring.lint import lint
from remap.errors import RemapError
from remap.plan import make_plan


@dataclass(frozen=True)
class Broken:
    """A pack, and what must be said of it; with ``keys``, when it is applied to them."""

    mistake: str
    body: str
    line: int
    cause: str
    fix: str
    keys: tuple[str, ...] = ()


def rule(text: str) -> str:
    return f"stages:\n  - rules:\n      - {text}\n"


def two(one: str, other: str) -> str:
    return f"stages:\n  - rules:\n      - {one}\n      - {other}\n"


PACKS = (
    Broken(
        "an unknown key",
        rule('{id: r, form: "a", to: "b"}'),
        7,
        "a rule has no 'form'",
        "did you mean 'from'",
    ),
    Broken(
        "a key twice",
        rule('{id: r, from: "a", to: "b", to: "c"}'),
        7,
        "'to' stands here twice",
        "first in line 7",
    ),
    Broken("no quotes", rule("{id: r, from: {x}.w, to: a}"), 7, "not valid YAML", "stand in quotes"),
    Broken("an anchor", "stages: &s\n  - rules: []\n", 5, "anchors and aliases are not part", "write it out"),
    Broken(
        "an undefined capture",
        rule('{id: r, from: "a.{x}", to: "b.{y}"}'),
        7,
        "from captures no 'y'",
        "captures no",
    ),
    Broken(
        "an unused capture",
        rule('{id: r, from: "a.{x}.{p}", to: "b.{x}"}'),
        7,
        "p is captured and not written",
        "write it in to:",
    ),
    Broken(
        "a kind that is none",
        rule('{id: r, from: "a.{x:integer}", to: "b.{x}"}'),
        7,
        "'integer' is no kind",
        "int, path, one",
    ),
    Broken(
        "a substring",
        rule('{id: r, from: "*gamma*", to: "*weight*"}'),
        7,
        "from holds \\*|to can't hold \\*",
        "capture it",
    ),
    Broken(
        "arithmetic on a name",
        rule('{id: r, from: "a.{i}", to: "b.{i+1}"}'),
        7,
        "'i' is no number",
        "write {i:int}",
    ),
    Broken(
        "touching captures",
        rule('{id: r, from: "a.{x}{y}", to: "b.{x}.{y}"}'),
        7,
        "two captures touch",
        "put something between",
    ),
    Broken("a drop without a reason", rule('{id: r, drop: "a"}'), 7, "drops without a reason", "because:"),
    Broken(
        "a regex without an inverse",
        rule("{id: r, regex: 'a(?P<x>.+)', to: \"b.{x}\"}"),
        7,
        "no inverse of its own",
        "say inverse:",
    ),
    Broken(
        "a regex with numbered groups",
        rule("{id: r, regex: 'a(.+)', to: b, inverse: none, because: x}"),
        7,
        "a group without a name",
        "\\(\\?P<name>",
    ),
    Broken(
        "an unknown op",
        rule('{id: r, from: "a", to: "b", do: transpoze}'),
        7,
        "no op is called 'transpoze'",
        "did you mean 'transpose'",
    ),
    Broken(
        "an op's wrong argument",
        rule('{id: r, from: ["a", "b"], to: "c", do: {concat: {axis: 0}}}'),
        7,
        "concat has no argument 'axis'",
        "it has dim",
    ),
    Broken(
        "several keys, no op",
        rule('{id: r, from: ["a", "b"], to: "c"}'),
        7,
        "several keys on one side",
        "do: says",
    ),
    Broken(
        "replaces nobody",
        two('{id: r, from: "a", to: "b", replaces: twoo}', '{id: two, from: "c", to: "d"}'),
        7,
        "replaces 'twoo'",
        "did you mean 'two'",
    ),
    Broken(
        "an unknown parameter",
        "params: {layers: {default: 1}}\n" + rule('{id: r, from: "a", to: "b", expect: 2*layer}'),
        8,
        "no parameter is called 'layer'",
        "did you mean 'layers'",
    ),
    Broken(
        "no inverse, and silent",
        rule('{id: r, from: "a.{i:int}", to: "b.{i//2}"}'),
        7,
        "it has no inverse",
        "say inverse: none with because:",
    ),
    Broken(
        "a wrong order that no value shows",
        rule('{id: r, from: "a", to: "b", do: transpose}'),
        7,
        "transpose needs an example",
        "with values",
    ),
    Broken(
        "two rules, one target",
        two('{id: r, from: "a.{x}", to: "m.{x}"}', '{id: s, from: "b.{x}", to: "m.{x}"}'),
        8,
        "as rule r in line 7",
        "writes m",
    ),
    Broken(
        "a broad rule over a narrow one",
        two(
            '{id: broad, from: "model.{rest:path}", to: "lm.{rest}"}',
            '{id: narrow, from: "model.visual.{rest:path}", to: "visual.{rest}"}',
        ),
        7,
        "more than one rule owns",
        "replaces: the other",
        ("model.visual.w", "model.a.w"),
    ),
    Broken(
        "a broad rule over a narrow one, without any keys",
        two(
            '{id: broad, from: "model.{rest:path}", to: "lm.{rest}"}',
            '{id: narrow, from: "model.visual.{rest:path}", to: "visual.{rest}"}',
        ),
        8,
        r"it matches model\.visual\.x, as rule broad in line 7",
        "replaces:",
    ),
    Broken(
        "a keep that never keeps",
        two('{id: all, from: "model.{rest:path}", to: "{rest}"}', '{keep: "model.norm.{p:weight|bias}"}'),
        8,
        "rule all in line 7 takes all that it matches",
        "say replaces: all",
    ),
    Broken(
        "two rules that may write one key",
        two('{id: r, from: "a.{x}", to: "m.{x}"}', '{id: s, from: "b.{i:int}", to: "m.{i}"}'),
        8,
        "it writes m.0, as rule r in line 7",
        "narrow what one of them captures",
    ),
    Broken(
        "a regex without a bound",
        rule('{id: r, regex: \'a(?P<x>.+)\', to: "b.{x}", inverse: {from: "b.{x}", to: "a{x}"}}'),
        7,
        r"has no bound: \.\+",
        r"as in \[\^\.\]\+",
    ),
    Broken(
        "a parameter that nobody uses",
        "params: {layers: {default: 1}}\n" + rule('{id: r, from: "a", to: "b"}'),
        5,
        "parameter layers is not used",
        "leave it out",
    ),
    Broken(
        "no evidence", rule('{id: r, from: "a", to: "b"}'), 1, "no evidence", "add evidence: with project"
    ),
    Broken(
        "a rule that no example shows",
        rule('{id: r, from: "a", to: "b"}') + "examples: [{given: {}, expect: {}}]\n",
        7,
        "no example shows it",
        "add one",
    ),
    Broken("no examples", rule('{id: r, from: "a", to: "b"}'), 1, "has no examples", "given: and expect:"),
    Broken(
        "an open question",
        rule('{id: r, from: "a", to: "b", confirm: is it so?}'),
        7,
        r"is it so\?",
        "delete confirm:",
    ),
    Broken(
        "a stated inverse without a reason",
        rule('{id: r, from: "a.{i:int}", to: "b.{i//2}", inverse: none}'),
        7,
        "inverse: none without a reason",
        "because:",
    ),
    Broken(
        "a layout that is none",
        "from: opt/hff\n" + rule('{id: r, from: "a", to: "b"}'),
        1,
        "no layout is called 'opt/hff'",
        "did you mean 'opt/hf'",
    ),
    Broken(
        "two keys become one",
        rule('{id: r, from: "model.{x}", to: "{x}"}') + '      - {id: s, keep: "{x}"}\n',
        7,
        "more than one key would get",
        "rename or drop one",
        ("model.a", "a"),
    ),
    Broken(
        "applied twice",
        rule('{id: wrap, from: "{l:int}.{part:attention|mlp}.{rest:path}", to: "{l}.{part}.block.{rest}"}'),
        7,
        "applied to these keys before",
        "--inverse",
        ("2.mlp.block.w",),
    ),
    Broken(
        "a number that goes below 0",
        rule('{id: r, from: "a.{i:int}", to: "b.{i-1}"}'),
        7,
        "i-1|is -1",
        "index can't be computed",
        ("a.0",),
    ),
    Broken(
        "experts with a gap",
        rule('{id: r, from: "e.{e:int}.w", to: "w", do: {stack: {over: e}}}'),
        7,
        "2 is missing",
        "e counts to 3",
        ("e.0.w", "e.1.w", "e.3.w"),
    ),
    Broken(
        "a dead rule",
        two('{id: r, from: "a.{x}", to: "b.{x}"}', '{id: dead, from: "layer.{x}", to: "c.{x}"}'),
        8,
        "matched no key: layer",
        "says optional: true",
        ("a.w",),
    ),
)


def said(the: Broken) -> str:
    """Everything that is said of the pack: by loading it, by lint, by a plan."""
    try:
        made = pack(the.body)
        if the.keys:
            make_plan(catalog(the.keys), [made])
    except RemapError as e:
        return str(e)
    return "\n".join(map(str, lint(made)))


@pytest.mark.parametrize("the", PACKS, ids=lambda p: p.mistake)
def test_a_mistake_is_answered_with_line_cause_and_fix(the: Broken) -> None:
    message = said(the)
    assert re.search(rf"test\.yaml:{the.line}\b", message), message
    assert re.search(the.cause, message), message
    assert re.search(the.fix, message), message
