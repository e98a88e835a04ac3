"""Conditions on parameters, and parameters from shapes and from other parameters."""

from __future__ import annotations

import pytest
from packs.language import catalog, renamed, renames, rules

from remap.errors import PackError
from remap.packs import load
from remap.plan import make_plan

TOWER = "tower: {choices: [text, both], or_present: {both: logit_scale, text: 'text.**'}, default: both}"
TOWERS = """
    - {id: text, from: "text.{rest:path}", to: "{rest}", when: {tower: text}}
    - {id: whole, keep: "**", when: {tower: both}}
"""


def test_a_rule_exists_where_its_condition_holds() -> None:
    the = rules(TOWERS, TOWER)
    assert renamed(the, ["text.a.w"]) == {"text.a.w": "a.w"}
    assert renamed(the, ["text.a.w", "logit_scale"]) == {"text.a.w": "text.a.w", "logit_scale": "logit_scale"}


def test_a_rule_that_does_not_exist_need_not_fire() -> None:
    assert renames(make_plan(catalog(["text.a.w"]), [rules(TOWERS, TOWER)])) == {"text.a.w": "a.w"}


def test_the_way_back_remembers() -> None:
    the = rules(TOWERS, TOWER)
    there = make_plan(catalog(["text.a.w"]), [the])
    remembered = {s.pack: s.params for s in there.steps}
    back = make_plan(catalog(["a.w"]), [the], inverse=True, remembered=remembered)
    assert renames(back) == {"a.w": "text.a.w"}


@pytest.mark.parametrize(
    ("when", "message"),
    [("{towr: text}", "did you mean 'tower'"), ("{tower: txt}", "never 'txt'; did you mean 'text'")],
)
def test_a_condition_is_checked(when: str, message: str) -> None:
    with pytest.raises(PackError, match=message):
        rules(f'- {{id: r, from: "a", to: "b", when: {when}}}', TOWER)


def test_a_stage_exists_where_its_condition_holds(
    tmp_path: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pathlib import Path

    from packs.language import HEAD

    folder = Path(str(tmp_path)) / "mine"
    folder.mkdir()
    (folder / "inner.yaml").write_text(
        HEAD.replace("test/pack", "mine/inner") + 'stages: [{rules: [{id: r, from: "a.{x}", to: "b.{x}"}]}]\n'
    )
    (folder / "outer.yaml").write_text(
        HEAD.replace("test/pack", "mine/outer")
        + "params: {more: {choices: ['yes', 'no'], default: 'no'}}\n"
        + "stages: [{use: mine/inner, when: {more: 'yes'}}, {rules: [{keep: '**'}]}]\n"
    )
    monkeypatch.setenv("REMAP_RULES", str(tmp_path))
    outer = load("mine/outer")
    assert renamed(outer, ["a.w"]) == {"a.w": "a.w"}
    assert renamed(outer, ["a.w"], params={"more": "yes"}) == {"a.w": "b.w"}


SIZES = """
    hidden: {or_shape: {key: "norm.w"}}
    heads: {default: 4}
    size: {value: "hidden // heads"}
"""
CUT = '- {id: cut, from: "x", to: ["y", "z"], do: {split: {sizes: [size, hidden-size]}}}\n- {keep: "norm.w"}'


def test_sizes_come_from_shapes_and_from_one_another() -> None:
    plan = make_plan(catalog({"x": "f16[8,2]", "norm.w": "f16[8]"}), [rules(CUT, SIZES)])
    assert {o.key: str(o.expr.spec) for o in plan.outputs} == {
        "y": "f16[2,2]",
        "z": "f16[6,2]",
        "norm.w": "f16[8]",
    }
    assert plan.steps[0].params == {"hidden": 8, "heads": 4, "size": 2}


def test_a_shape_that_differs_from_key_to_key_gives_no_size() -> None:
    the = rules('- {id: r, from: "{i:int}.w", to: "{i+hidden}.w"}', 'hidden: {or_shape: {key: "{i:int}.w"}}')
    assert renames(make_plan(catalog({"0.w": "f16[2]", "1.w": "f16[2]"}), [the])) == {
        "0.w": "2.w",
        "1.w": "3.w",
    }
    from remap.errors import PlanError

    with pytest.raises(PlanError, match="without a value"):
        make_plan(catalog({"0.w": "f16[2]", "1.w": "f16[3]"}), [the])
