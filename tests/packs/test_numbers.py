"""Numbers that no key, no size and no tensor can have: errors that name the rule, never a result."""

from __future__ import annotations

import time

import pytest
from packs.language import catalog, pack, renamed, rules

from remap.errors import PackError, PlanError, RemapError, UsageError
from remap.plan import make_plan

N = "n: {default: 3}"
ZERO = "k: {default: 0}"


@pytest.mark.parametrize(
    ("rule", "params", "cause"),
    [
        ('{id: r, from: "a.{x}", to: "b.{n-5}.{x}"}', N, "(n-5) is -2, with n = 3"),
        ('{id: r, from: "{n-5}.{x}", to: "b.{x}"}', N, "(n-5) is -2, with n = 3"),
        ('{id: r, from: "a.{i:int}", to: "b.{i//k}.{i%k}"}', ZERO, "(i//0): division by 0, with k = 0"),
        ('{id: r, from: "a.{i:int}", to: "b.{i}.{7//k}"}', ZERO, "(7//0): division by 0, with k = 0"),
        ('{id: r, from: "a.{i:int}", to: "b.{i}", expect: 4//k}', ZERO, "(4//k): division by 0"),
        ('{id: r, add: "c.{i:int}", each: {i: n-5}, shape: [2]}', N, "(n-5) is -2, with n = 3"),
        ('{id: r, add: "c", shape: [n-5]}', N, "(n-5) is -2, with n = 3"),
        ('{id: r, add: "c", shape: [3//k]}', ZERO, "(3//k): division by 0, with k = 0"),
        ('{id: r, add: "c.{n-5}", shape: [2]}', N, "(n-5) is -2, with n = 3"),
        (
            '{id: r, from: "a.{i:int}", to: "b.{i}", do: {reshape: {to: [n-7, n-7], from: [4, 4]}}}',
            N,
            "is -4",
        ),
        ('{id: r, from: "a.{i:int}", to: "b.{i}", do: {slice: {start: n-4, stop: 2}}}', N, "(n-4) is -1"),
    ],
)
def test_arithmetic_that_gives_no_number(rule: str, params: str, cause: str) -> None:
    with pytest.raises(PlanError) as e:
        make_plan(catalog(["a.1", "z"]), [rules(f'- {rule}\n- {{keep: "**"}}', params)])
    assert cause in str(e.value)
    assert "test.yaml:9 (rule r)" in str(e.value)


def test_a_division_by_nothing_is_seen_when_the_pack_is_read() -> None:
    with pytest.raises(PackError, match="division by 0") as e:
        rules('- {id: r, from: "a.{i:int}", to: "b.{i//0}"}')
    assert e.value.where == "test.yaml:7"


@pytest.mark.parametrize(
    ("what", "cause"),
    [
        ("dtype: i64, fill: 0.5", "int64 does not hold 0.5"),
        ("dtype: u8, fill: -3", "uint8 does not hold -3"),
        ("dtype: i8, fill: 128", "int8 does not hold 128"),
        ("dtype: bool, fill: 2", "bool does not hold 2"),
        ("dtype: f16, fill: 100000", "float16 does not hold 100000"),
        ("dtype: i32, fill: {std: 1.0}", "int32 does not hold a random value"),
        ("fill: {std: -1.0}", "a standard deviation of -1"),
        ("fill: 1e+400", "too large"),
        ("fill: {rotary: 0}", "rotary frequencies of base 0"),
        ("dtype: i8, fill: {rotary: 10000}", "as int8"),
    ],
)
def test_values_that_a_new_tensor_can_not_have(what: str, cause: str) -> None:
    with pytest.raises(RemapError) as e:
        make_plan(catalog(["a"]), [rules(f'- {{keep: "a"}}\n- {{id: r, add: "b", shape: [2], {what}}}')])
    assert cause in str(e.value)
    assert "test.yaml:8" in str(e.value)


@pytest.mark.parametrize(
    ("spec", "value", "cause"),
    [("i32[4]", "0.5", "int32"), ("u8[4]", "-1", "uint8"), ("f16[4]", "1e+9", "float16")],
)
def test_padding_that_a_tensor_can_not_have(spec: str, value: str, cause: str) -> None:
    the = rules(f'- {{id: r, from: "a", to: "b", do: {{pad: {{to: 6, from: 4, value: {value}}}}}}}')
    with pytest.raises(PlanError, match=f"which {cause} does not hold"):
        make_plan(catalog({"a": spec}), [the])


@pytest.mark.parametrize(
    "op",
    [
        "scale: {by: 1e+400}",
        "scale: {by: 1e-320, rounding: allowed}",
        "add_offset: {by: 1e+400, rounding: allowed}",
    ],
)
def test_a_number_that_float32_can_not_undo(op: str) -> None:
    with pytest.raises(PackError, match="test.yaml:7|by: "):
        rules(f'- {{id: r, from: "a", to: "b", do: {{{op}}}}}')


@pytest.mark.parametrize(("fraction", "wanted"), [(0.29, 29), (0.07, 7), (0.55, 55), (0.25, 25), (1, 100)])
def test_a_fraction_in_percent_is_whole(fraction: float, wanted: int) -> None:
    the = rules('- {id: r, from: "a", to: "b.{n}"}', "n: {from_config: pct, times: 100}")
    plan = make_plan(catalog(["a"], {"pct": fraction}), [the])
    assert plan.outputs[0].key == f"b.{wanted}"


@pytest.mark.parametrize("value", [0.123, True, float("nan"), float("inf"), 1e300, "x"])
def test_what_config_says_that_is_no_percentage(value: object) -> None:
    the = rules('- {id: r, from: "a", to: "b.{n}"}', "n: {from_config: pct, times: 100}")
    with pytest.raises(UsageError, match="config.json, pct, parameter n of test/pack"):
        make_plan(catalog(["a"], {"pct": value}), [the])


def test_a_number_of_thousands_of_digits_is_refused() -> None:
    the = rules('- {id: r, from: "a", to: "b.{n}"}', N)
    with pytest.raises(UsageError, match="a number of 5000 digits; 15 are allowed"):
        make_plan(catalog(["a"]), [the], params={"n": "9" * 5000})


def test_a_gap_of_a_quadrillion_layers_is_found_at_once() -> None:
    the = rules('- {id: r, from: "a.{i:int}.w", to: "b.{i}.w"}', 'n: {or_count: "a.{i:int}.w"}')
    began = time.process_time()
    with pytest.raises(PlanError, match="without 1, 2, 3, 4, 5, 6, 7, 8, ..."):
        make_plan(catalog(["a.0.w", "a.999999999999999.w"]), [the])
    assert time.process_time() - began < 1


def test_a_zero_character_is_no_number() -> None:
    """Keys are grouped by what is left without their numbers, and this mark stands for a number there."""
    the = pack('stages: [{rules: [{id: r, from: "{x}", to: "b.{x}"}]}]')
    with pytest.raises(PlanError, match="zero character"):
        renamed(the, ["a\0b", "a1b"])


def test_a_digit_of_another_script_is_text() -> None:
    the = rules('- {id: r, from: "m1²3.{x}", to: "n³.{x}"}\n- {id: t, from: "²{x}", to: "{x}"}')
    assert renamed(the, ["m1²3.w", "²w"]) == {"m1²3.w": "n³.w", "²w": "w"}
    assert renamed(the, ["n³.w"], inverse=True) == {"n³.w": "m1²3.w"}
