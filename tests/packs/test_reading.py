"""Broken packs: each mistake is one message with the line, the cause and what to do."""

from __future__ import annotations

from pathlib import Path

import pytest
from packs.language import HEAD, pack, rules

from remap.errors import PackError
from remap.packs import read

RULE = 'from: "a.{x}", to: "b.{x}"'


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ("{id: r, frm: a, to: b}", "has no 'frm'; did you mean 'from'"),
        ("{id: r, from: a}", "from without to"),
        ("{from: a, to: b}", "needs an id"),
        ("{id: r, from: a, keep: b, to: c}", "exactly one of"),
        ("{id: r}", "exactly one of"),
        ("{id: r, drop: a}", "without a reason"),
        ("{drop: a, because: x}", "needs an id"),
        ('{id: r, from: "a.{x}", to: "b.{y}"}', "captures no 'y'"),
        ('{id: r, from: "a.{x}.{y}", to: "b.{x}"}', "y is captured and not written"),
        ('{id: r, from: "a.*", to: "b"}', "from holds \\*"),
        ('{id: r, from: "a.{x}", to: "b.*"}', "to can't hold \\*"),
        ('{id: r, from: "a.{x}", to: "b.{x+1}"}', "'x' is no number"),
        ('{id: r, from: ["a", "b"], to: "c"}', "no do: says"),
        ("{id: r, from: a, to: b, inverse: none}", "without a reason"),
        (f"{{id: r, {RULE}, replaces: other}}", "replaces 'other'"),
        (f"{{id: r, {RULE}, expect: 7*layers}}", "no parameter is called 'layers'"),
        (f"{{id: r, {RULE}, optional: maybe}}", "expected `true or false`"),
        (f"{{id: r, {RULE}, do: concatt}}", "did you mean 'concat'"),
        ('{id: r, from: "a.{x}", to: {x}.b}', "quotes"),
        ('{id: r, regex: "a(.*)", to: "b", inverse: none, because: x}', "group without a name"),
        ('{id: r, regex: "a(?P<x>.*)", to: "b.{x}"}', "no inverse of its own"),
        ('{id: r, regex: "a((", to: "b", inverse: none, because: x}', "is no regex"),
    ],
)
def test_a_broken_rule_is_named_with_its_line(rule: str, message: str) -> None:
    with pytest.raises(PackError, match=message) as e:
        rules(f"- {rule}")
    assert e.value.where == "test.yaml:7"


def test_all_unknown_names_are_reported_at_once() -> None:
    with pytest.raises(PackError) as e:
        pack("""
            titel: x
            stages:
              - ruels: []
        """)
    assert e.value.problems == (
        "test.yaml:5: a pack has no 'titel'; did you mean 'title'?",
        "test.yaml:7: a stage has no 'ruels'; did you mean 'rules'?",
    )


def test_all_broken_rules_are_reported_at_once() -> None:
    with pytest.raises(PackError) as e:
        rules("""
            - {id: a, drop: x}
            - {id: b, from: "x.{i:int}", to: "y.{j}"}
        """)
    assert [p.split(":")[1] for p in e.value.problems] == ["7", "8"]


def test_two_rules_of_one_id() -> None:
    with pytest.raises(PackError, match="another rule in line 7 has this id"):
        rules('- {id: r, from: "a", to: "b"}\n- {id: r, from: "c", to: "d"}')


def test_another_version_of_the_language() -> None:
    with pytest.raises(PackError, match="version 2 of the language"):
        read(b"remap: 2\npack: a/b\nversion: '1'\ntitle: x\nstages: [{rules: [{keep: a}]}]\n", "f.yaml")


@pytest.mark.parametrize(
    ("param", "message"),
    [
        ("{default: many}", "no whole number"),
        ("{choices: [a, b], default: c}", "no choice is called 'c'"),
        ("{choices: {a: {up: x}, b: {down: y}}}", "carry different names"),
        ("{choices: [a], or_present: {b: x}}", "no choice is called 'b'"),
        ("{min: 3, default: 1}", "less than min"),
        ("{choices: [a], or_count: x}", "gives a number"),
    ],
)
def test_a_broken_parameter(param: str, message: str) -> None:
    with pytest.raises(PackError, match=message):
        rules('- {keep: "**"}', params=f"p: {param}")


def test_a_choice_with_names_is_used_by_name() -> None:
    with pytest.raises(PackError, match="say which name: {mlp.up}"):
        rules('- {id: r, from: "a", to: "{mlp}"}', params="mlp: {choices: {a: {up: x, down: y}}}")
    with pytest.raises(PackError, match="carries no 'upp'; did you mean 'up'"):
        rules('- {id: r, from: "a", to: "{mlp.upp}"}', params="mlp: {choices: {a: {up: x, down: y}}}")


@pytest.mark.parametrize(
    ("rule", "cause"),
    [
        ("{keep: []}", "keep: an empty list"),
        ("{id: r, drop: [], because: x}", "drop: an empty list"),
        ('{id: r, from: [], to: "b"}', "from: an empty list"),
        ('{id: r, from: "b", to: []}', "to: an empty list"),
        ('{id: r, from: "b", to: [], do: []}', "to: an empty list"),
        ('{id: "", from: "b", to: "c"}', "a rule needs an id"),
        ('{id: "", drop: "b", because: x}', "a drop needs an id"),
        ('{id: "", add: "b", shape: [1]}', "a rule needs an id"),
        ('{id: r, from: "b", to: "c", do: {}}', "do: an empty step"),
        ('{id: r, from: "a.{}", to: "c"}', "an empty hole"),
        ('{id: r, from: "a", to: "c", when: {n: many}}', "when: n is a number, never many"),
        ('{id: r, from: "a", to: "c", when: {n: []}}', "when: n is a number, never one of nothing"),
    ],
)
def test_what_says_nothing(rule: str, cause: str) -> None:
    with pytest.raises(PackError) as e:
        rules(f"- {rule}", "n: {default: 1}")
    assert cause in e.value.what
    assert e.value.where == "test.yaml:9"


@pytest.mark.parametrize(
    ("param", "cause"),
    [
        ("{choices: []}", "at least one"),
        ("{choices: [a, a]}", "different names"),
        ("{times: 0}", "times: 0 is less than 1"),
        ('{or_shape: {key: "a", dim: -1}}', "counted from 0"),
        ("{default: -1}", "default: -1 is less than min: 0"),
    ],
)
def test_a_parameter_that_is_none_is_the_only_problem(param: str, cause: str) -> None:
    with pytest.raises(PackError) as e:
        rules('- {id: r, from: "a", to: "c.{n}"}', f"n: {param}")
    assert cause in e.value.what
    assert e.value.where == "test.yaml:6"


@pytest.mark.parametrize("value", ["x", "-1", '"1+1"', "9999999999999999"])
def test_a_value_for_a_used_pack_is_checked_where_it_stands(tmp_path: Path, value: str) -> None:
    used = tmp_path / "used.yaml"
    used.write_text(
        f'{HEAD}params: {{n: {{default: 1}}}}\nstages: [{{rules: [{{id: r, from: "a", to: "c.{{n}}"}}]}}]\n'
    )
    with pytest.raises(PackError) as e:
        pack(f"stages:\n  - use: {used}\n    with: {{n: {value}}}\n")
    assert str(e.value.where) == "test.yaml:6"


@pytest.mark.parametrize("id_", ['"a > b"', '"a|b"', '"a\\nb"', "a b", '"`a`"'])
def test_an_id_that_plans_and_pages_can_not_show(id_: str) -> None:
    with pytest.raises(PackError, match="is no id"):
        rules(f"- {{id: {id_}, {RULE}}}")


@pytest.mark.parametrize(
    ("a", "b", "said"),
    [("a", "a", "rule a: replaces itself"), ("b", "a", "rule b: replaces 'a', which replaces it")],
)
def test_rules_that_yield_to_each_other(a: str, b: str, said: str) -> None:
    with pytest.raises(PackError) as e:
        rules(f"- {{id: a, {RULE}, replaces: {a}}}\n- {{id: b, {RULE}, replaces: {b}}}")
    assert said in str(e.value)
