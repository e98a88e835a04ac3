"""Where a parameter's value comes from, in this order: given, set, remembered, config, keys, default."""

from __future__ import annotations

import pytest
from packs.language import catalog, pack, renamed, renames, rules

from remap.errors import PackError, PlanError, UsageError
from remap.plan import make_plan

LAYERS = """
    layers: {from_config: [text.num_layers, num_layers], or_count: ["h.{i:int}.**", "l.{i:int}.**"]}
"""
NORM = '- {id: norm, from: "ln.{p}", to: "{layers+3}.{p}", optional: true}\n'
REST = '- {id: rest, from: "h.{i:int}.{x}", to: "l.{i}.{x}", optional: true}\n'
KEYS = ["h.0.w", "h.0.b", "h.1.w", "ln.w"]


def test_a_count_is_of_distinct_captures() -> None:
    assert renamed(rules(NORM + REST, LAYERS), KEYS)["ln.w"] == "5.w"


def test_config_comes_before_the_count() -> None:
    plan = make_plan(catalog(KEYS, {"num_layers": 7}), [rules(NORM + REST, LAYERS)])
    assert renames(plan)["ln.w"] == "10.w"


def test_a_dotted_path_leads_into_the_config() -> None:
    config = {"text": {"num_layers": 9}, "num_layers": 7}
    plan = make_plan(catalog(KEYS, config), [rules(NORM + REST, LAYERS)])
    assert renames(plan)["ln.w"] == "12.w"


def test_what_a_receipt_remembers_comes_before_the_config() -> None:
    the = rules(NORM + REST, LAYERS)
    plan = make_plan(catalog(KEYS, {"num_layers": 7}), [the], remembered={"test/pack": {"layers": 4}})
    assert renames(plan)["ln.w"] == "7.w"


def test_what_is_given_comes_first() -> None:
    the = rules(NORM + REST, LAYERS)
    plan = make_plan(catalog(KEYS), [the], params={"layers": "1"}, remembered={"test/pack": {"layers": 4}})
    assert renames(plan)["ln.w"] == "4.w"
    assert plan.steps[0].params == {"layers": 1}


def test_without_a_value_the_rule_that_needs_it_says_what_was_tried() -> None:
    with pytest.raises(PlanError, match="without a value") as e:
        renamed(rules(NORM, LAYERS), ["ln.w"])
    assert "config.json has no num_layers" in e.value.problems[0]
    assert e.value.remedy == "give it: -p layers=..."


@pytest.mark.parametrize("value", ["many", "--1", "1.5", "²"])
def test_a_number_must_be_one(value: str) -> None:
    with pytest.raises(UsageError, match="no whole number"):
        renamed(rules(NORM, LAYERS), ["ln.w"], params={"layers": value})


def test_an_unknown_parameter_is_an_error() -> None:
    with pytest.raises(UsageError, match="no pack here has a parameter 'layer'; did you mean 'layers'"):
        renamed(rules(NORM, LAYERS), ["ln.w"], params={"layer": "3"})


HEAD = "head: {choices: [embed_out, lm_head], default: embed_out, or_present: {lm_head: lm_head.weight}}"
HEADS = '- {id: head, from: "{head}.weight", to: "out.weight"}'


@pytest.mark.parametrize("head", ["embed_out", "lm_head"])
def test_a_spelling_is_accepted_and_restored(head: str) -> None:
    the = rules(HEADS, HEAD)
    there = make_plan(catalog([f"{head}.weight"]), [the])
    assert renames(there) == {f"{head}.weight": "out.weight"}
    remembered = {step.pack: step.params for step in there.steps}
    back = make_plan(catalog(["out.weight"]), [the], inverse=True, remembered=remembered)
    assert renames(back) == {"out.weight": f"{head}.weight"}


def test_a_choice_must_be_one() -> None:
    with pytest.raises(UsageError, match="not one of its choices; did you mean 'lm_head'"):
        renamed(rules(HEADS, HEAD), ["embed_out.weight"], params={"head": "lmhead"})


def test_a_choice_may_be_empty_text() -> None:
    prefix = 'prefix: {choices: {bare: "", model: "model."}, default: bare, or_present: {model: "model.**"}}'
    the = rules('- {id: r, from: "{prefix}layers.{x}", to: "l.{x}"}', prefix)
    assert renamed(the, ["layers.w"]) == {"layers.w": "l.w"}
    assert renamed(the, ["model.layers.w"]) == {"model.layers.w": "l.w"}


def test_what_is_computed_may_be_computed_from_what_is_computed() -> None:
    the = rules('- {id: r, from: "w", to: "{c}.w"}', "c: {value: b*2}\nb: {value: a+1}\na: {default: 3}")
    assert renamed(the, ["w"]) == {"w": "8.w"}


def test_parameters_in_a_circle_are_an_error_that_prints_it() -> None:
    with pytest.raises(PackError, match="in a circle: b -> c -> b") as e:
        rules('- {id: r, from: "w", to: "{a}.w"}', "a: {value: b}\nb: {value: c+1}\nc: {value: b-1}")
    assert e.value.where == "test.yaml:7"


@pytest.mark.parametrize(
    ("param", "message"),
    [
        ("{value: b-5}", r"\(b-5\), parameter a of test/pack: -2 is less than 0"),
        ("{value: b//z}", r"parameter a of test/pack: \(b//z\): division by 0, with b = 3, z = 0"),
        ("{or_count: 'w.{i:int}', min: 4}", "w.{i:int}, parameter a of test/pack: 1 is less than 4"),
        ("{or_shape: {key: 'w.0', dim: 1}, min: 9}", "w.0, parameter a of test/pack: 4 is less than 9"),
    ],
)
def test_every_value_is_checked_wherever_it_comes_from(param: str, message: str) -> None:
    the = rules('- {id: r, from: "w.0", to: "{a}.w"}', f"a: {param}\nb: {{default: 3}}\nz: {{default: 0}}")
    with pytest.raises(UsageError, match=message):
        renamed(the, ["w.0"])


def test_what_was_tried_is_said_for_choices_and_for_what_is_computed() -> None:
    params = (
        "k: {choices: [a, b], or_present: {a: 'x.**', b: 'y.**'}}\nn: {value: m*2}\nm: {from_config: size}"
    )
    the = rules('- {id: r, from: "w", to: "{k}.{n}.w"}', params)
    with pytest.raises(PlanError) as e:
        renamed(the, ["w"])
    assert e.value.problems[:2] == (
        "k: no key matches x.**, no key matches y.**",
        "n: (m*2) needs m (config.json has no size)",
    )


@pytest.mark.parametrize(
    ("params", "message"),
    [("{}", "split: no parameter is called 'n'"), ("{n: {choices: [x]}}", "'n' is a name, no number")],
)
def test_the_sizes_of_an_op_are_parameters_that_are_numbers(params: str, message: str) -> None:
    rule = '{id: r, from: "w", to: ["a", "b"], do: {split: {sizes: [n, n]}}}'
    with pytest.raises(PackError, match=message):
        pack(f"params: {params}\nstages: [{{rules: [{rule}]}}]\n")


def test_a_fraction_of_the_config_is_counted_in_percent() -> None:
    the = rules(NORM + REST, "layers: {from_config: part, times: 100}")
    assert renames(make_plan(catalog(KEYS, {"part": 0.25}), [the]))["ln.w"] == "28.w"
    assert renames(make_plan(catalog(KEYS, {"part": 2.0}), [rules(NORM + REST, LAYERS)]))["ln.w"] == "5.w"
    with pytest.raises(UsageError, match=r"0\.125 is no whole number|12\.5 is no whole number"):
        make_plan(catalog(KEYS, {"part": 0.125}), [the])


def test_true_and_false_are_choices_as_yaml_spells_them() -> None:
    the = rules(
        '- {id: all, from: "h.{i:int}.{x}", to: "{which}.{i}.{x}"}',
        'which: {choices: {"true": yes_, "false": no_}, from_config: flag}',
    )
    assert renames(make_plan(catalog(["h.0.w"], {"flag": False}), [the])) == {"h.0.w": "no_.0.w"}
