"""One owner for every key, all rules at once, nothing lost in silence."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packs.language import catalog, pack, renamed, renames, rules

from remap.errors import AlreadyConverted, PlanError, UsageError
from remap.plan import make_plan


def test_rules_apply_at_once_so_a_swap_works() -> None:
    the = rules("""
        - {id: there, from: "a.{x}", to: "b.{x}"}
        - {id: back, from: "b.{x}", to: "a.{x}"}
    """)
    assert renamed(the, ["a.w", "b.w"]) == {"a.w": "b.w", "b.w": "a.w"}


def test_a_chain_does_not_run_on() -> None:
    # conv1 -> conv0 and conv2 -> conv1, evaluated against the old names (cases i07, i16)
    the = rules("""
        - {id: first, from: "conv1.{p}", to: "conv0.{p}"}
        - {id: second, from: "conv2.{p}", to: "conv1.{p}"}
    """)
    assert renamed(the, ["conv1.w", "conv2.w"]) == {"conv1.w": "conv0.w", "conv2.w": "conv1.w"}


def test_two_owners_are_named_with_their_lines() -> None:
    the = rules("""
        - {id: one, from: "a.{x}", to: "b.{x}"}
        - {id: two, from: "{y}.w", to: "c.{y}.w"}
    """)
    with pytest.raises(PlanError, match="more than one rule owns") as e:
        renamed(the, ["a.w"])
    assert e.value.problems == ("a.w: test.yaml:7 (rule one) and test.yaml:8 (rule two)",)


def test_one_that_replaces_the_other_wins() -> None:
    the = rules("""
        - {id: one, from: "a.{x}", to: "b.{x}"}
        - {id: two, from: "a.special", to: "special", replaces: one}
    """)
    assert renamed(the, ["a.w", "a.special"]) == {"a.w": "b.w", "a.special": "special"}


def test_a_keep_yields_to_what_transforms() -> None:
    the = rules("""
        - {keep: "**"}
        - {id: one, from: "a.{x}", to: "b.{x}"}
    """)
    assert renamed(the, ["a.w", "c.w"]) == {"a.w": "b.w", "c.w": "c.w"}


def test_the_owner_may_depend_on_the_number() -> None:
    the = rules("""
        - {id: first, from: "0.{x}", to: "embed.{x}"}
        - {id: rest, from: "{i+1}.{x}", to: "layers.{i}.{x}"}
    """)
    there = renamed(the, ["0.w", "1.w", "12.w"])
    assert there == {"0.w": "embed.w", "1.w": "layers.0.w", "12.w": "layers.11.w"}


def test_keys_without_an_owner_are_grouped_and_the_nearest_rule_is_named() -> None:
    the = rules('- {id: r, from: "layers.{i:int}.attn.w", to: "{i}.w"}')
    keys = [f"layers.{i}.attn.w" for i in range(3)] + [f"layers.{i}.atn.w" for i in range(24)]
    with pytest.raises(PlanError, match="no rule owns") as e:
        renamed(the, keys)
    (line,) = e.value.problems
    assert line.startswith("layers.0.atn.w (and 23 more like it)")
    assert "layers.{i:int}.attn.w (rule r, line 7)" in line


def test_two_sources_of_one_target_are_both_named() -> None:
    # case i10: {"model.a", "a"} with a prefix taken off
    the = rules("""
        - {id: strip, from: "model.{x}", to: "{x}"}
        - {id: plain, from: "{x}", to: "{x}"}
    """)
    with pytest.raises(PlanError, match="more than one key would get") as e:
        renamed(the, ["model.a", "a"])
    assert e.value.problems == (
        "a: from model.a (test.yaml:7 (rule strip)) and a (test.yaml:8 (rule plain))",
    )


def test_a_rule_that_matches_nothing_is_an_error_unless_it_is_optional() -> None:
    the = rules("""
        - {id: used, from: "a.{x}", to: "b.{x}"}
        - {id: idle, from: "c.{x}", to: "d.{x}"}
    """)
    with pytest.raises(PlanError, match="did not fire") as e:
        make_plan(catalog(["a.w"]), [the])
    assert e.value.problems[0].startswith("test.yaml:8 (rule idle) matched no key: c.{x}")
    also = rules("""
        - {id: used, from: "a.{x}", to: "b.{x}"}
        - {id: idle, from: "c.{x}", to: "d.{x}", optional: true}
    """)
    assert renames(make_plan(catalog(["a.w"]), [also])) == {"a.w": "b.w"}


def test_expect_counts() -> None:
    the = rules(
        '- {id: r, from: "l.{i:int}.{x}", to: "{i}.{x}", expect: 2*layers}',
        params="layers: {default: 2}",
    )
    assert len(make_plan(catalog(["l.0.a", "l.0.b", "l.1.a", "l.1.b"]), [the]).outputs) == 4
    with pytest.raises(PlanError) as e:
        make_plan(catalog(["l.0.a", "l.0.b", "l.1.a"]), [the])
    assert e.value.problems == ("test.yaml:9 (rule r) matched 3 keys; it expects (2*layers) = 4",)


def test_a_drop_says_why() -> None:
    the = rules("""
        - {id: gone, drop: ["a.{x}", "b"], because: not needed}
        - {keep: "c"}
    """)
    plan = make_plan(catalog(["a.w", "b", "c"]), [the])
    assert [(d.key, d.rule, d.because) for d in plan.drops] == [
        ("a.w", "gone", "not needed"),
        ("b", "gone", "not needed"),
    ]


WRAP = """
    - {id: wrapped, from: "{i:int}.{part:attention|mlp}.{rest:path}", to: "{i}.{part}.attn_block.{rest}"}
    - {keep: "{i:int}.{rest:path}"}
"""


def test_a_wrapper_is_not_applied_twice() -> None:
    with pytest.raises(AlreadyConverted) as e:
        renamed(rules(WRAP), ["2.attention.attn_block.dense.weight", "2.norm.weight"])
    assert "2.attention.attn_block.dense.weight" in e.value.problems[0]
    assert e.value.remedy is not None
    assert "--again wrapped" in e.value.remedy


def test_a_wrapper_is_applied_twice_when_asked_by_name() -> None:
    once = "2.attention.attn_block.dense.weight"
    there = renamed(rules(WRAP), [once], again=["wrapped"])
    assert there == {once: "2.attention.attn_block.attn_block.dense.weight"}


def test_a_rule_to_be_applied_again_must_be_there() -> None:
    with pytest.raises(UsageError, match="no rule here is called 'wrap'; did you mean 'wrapped'"):
        renamed(rules(WRAP), ["2.norm.weight"], again=["wrap"])


def test_taking_a_wrapper_off_is_no_double_application() -> None:
    the = rules(WRAP)
    key = "2.attention.attn_block.dense.weight"
    assert renamed(the, [key], inverse=True) == {key: "2.attention.dense.weight"}


def test_an_index_shift_is_no_double_application() -> None:
    the = rules('- {id: shift, from: "{i:int}.{rest:path}", to: "{i+2}.{rest}"}')
    assert renamed(the, ["2.w", "3.w"]) == {"2.w": "4.w", "3.w": "5.w"}


def test_adding_a_prefix_twice_is_seen() -> None:
    # case i04: encoder.encoder.layers
    the = rules('- {id: strip, from: "encoder.{rest:path}", to: "{rest}"}')
    with pytest.raises(AlreadyConverted):
        renamed(the, ["encoder.layers.0.w"], inverse=True)


def test_output_of_the_pack_itself_is_recognised() -> None:
    the = rules('- {id: r, from: "model.{rest:path}", to: "m.{rest}"}')
    with pytest.raises(AlreadyConverted, match="already"):
        renamed(the, ["m.a.w", "m.b.w"])


def test_ambiguous_ways_back_are_an_error() -> None:
    the = rules("""
        - {id: r, from: "a.{x}", to: "b.{x}"}
        - {keep: "**"}
    """)
    with pytest.raises(PlanError, match="inverse does not bring back") as e:
        renamed(the, ["a.v", "b.w"])
    assert e.value.problems[0].startswith("b.w -> b.w -> a.w")


def test_a_rule_without_an_inverse_says_so() -> None:
    the = rules("""
        - {id: r, from: "a.{i:int}", to: "b.{i//2}", inverse: none, because: pairs are one}
    """)
    assert renamed(the, ["a.4"]) == {"a.4": "b.2"}
    with pytest.raises(PlanError, match="no inverse") as e:
        renamed(the, ["b.2"], inverse=True)
    assert "pairs are one" in e.value.problems[0]


def test_a_rule_may_exist_in_one_direction() -> None:
    the = rules("""
        - {id: r, from: "a.{x}", to: "b.{x}"}
        - {id: gone, only: inverse, drop: "c", because: new}
    """)
    assert renamed(the, ["b.w", "c"], inverse=True) == {"b.w": "a.w"}
    with pytest.raises(PlanError, match="no rule owns"):
        renamed(the, ["a.w", "c"])


def test_stages_chain() -> None:
    the = pack("""
        stages:
          - rules:
              - {id: first, from: "a.{x}", to: "b.{x}"}
          - rules:
              - {id: second, from: "b.{x}", to: "c.{x}"}
    """)
    plan = make_plan(catalog(["a.w"]), [the])
    assert [(o.key, o.rule, o.op, o.sources) for o in plan.outputs] == [
        ("c.w", "first > second", "rename", ("a.w",))
    ]
    assert renamed(the, ["c.w"], inverse=True) == {"c.w": "a.w"}


SEGMENT = st.text("abcxyz_", min_size=1, max_size=4)


@given(
    names=st.lists(SEGMENT, min_size=2, max_size=6, unique=True),
    layers=st.integers(1, 15),
    shift=st.integers(0, 20),
    data=st.data(),
)
def test_any_permutation_of_names_with_shifted_indexes_comes_back(
    names: list[str], layers: int, shift: int, data: st.DataObject
) -> None:
    swapped = data.draw(st.permutations(names))
    the = rules(
        "\n".join(
            f'- {{id: r{n}, from: "h.{{i:int}}.{a}.{{p}}", to: "h.{{i+{shift}}}.{b}.{{p}}"}}'
            for n, (a, b) in enumerate(zip(names, swapped, strict=True))
        )
    )
    keys = [f"h.{i}.{name}.w" for i in range(layers) for name in names]
    there = renamed(the, keys)
    assert there == {
        f"h.{i}.{a}.w": f"h.{i + shift}.{b}.w"
        for i in range(layers)
        for a, b in zip(names, swapped, strict=True)
    }
    assert renamed(the, there.values(), inverse=True) == {v: k for k, v in there.items()}


@given(depth=st.integers(1, 4), count=st.integers(1, 14))
def test_prefixes_that_repeat_come_off_one_by_one(depth: int, count: int) -> None:
    the = rules('- {id: strip, from: "model.{rest:path}", to: "{rest}"}')
    keys = [".".join(["model"] * depth + [str(i), "w"]) for i in range(count)]
    there = renamed(the, keys)
    assert there == {k: k.removeprefix("model.") for k in keys}
    again = renamed(the, there.values(), inverse=True, again=["strip"])
    assert again == {v: k for k, v in there.items()}


def test_what_is_taken_back_twice_is_told_to_go_forward() -> None:
    the = rules('- {id: r, from: "a.{x}", to: "b.{x}"}')
    with pytest.raises(AlreadyConverted, match="begins with") as e:
        renamed(the, ["a.w"], inverse=True)
    assert e.value.remedy == "leave the pack out, or leave --inverse out to go forward"
