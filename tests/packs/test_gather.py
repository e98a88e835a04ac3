"""Rules that join and cut: experts complete and in numeric order, parts that are missing, the way back."""

from __future__ import annotations

import pytest
from packs.language import catalog, rules

from remap.errors import PackError, PlanError
from remap.expr import takes
from remap.plan import make_plan

EXPERTS = """
    - id: up
      from: ["l.{l:int}.e.{e:int}.w1", "l.{l:int}.e.{e:int}.w3"]
      to: "l.{l}.gate_up"
      do: [{concat: {dim: 0}}, {stack: {over: e}}]
"""


def experts(layers: int, count: int, order: int = 1) -> dict[str, str]:
    keys = [f"l.{n}.e.{e}.{w}" for n in range(layers) for e in range(count)[::order] for w in ("w1", "w3")]
    return dict.fromkeys(keys, "f16[6,4]")


def test_experts_are_joined_in_numeric_order_whatever_the_order_of_the_file() -> None:
    plan = make_plan(catalog(experts(2, 12, -1)), [rules(EXPERTS)])
    assert [o.key for o in plan.outputs] == ["l.0.gate_up", "l.1.gate_up"]
    assert str(plan.outputs[0].expr.spec) == "f16[12,12,4]"
    assert [t.entry.key for t in takes(plan.outputs[0].expr)] == [
        f"l.0.e.{e}.{w}" for e in range(12) for w in ("w1", "w3")
    ]
    assert plan.outputs[0].op == "concat > stack"


def test_experts_come_back() -> None:
    back = make_plan(catalog({"l.0.gate_up": "f16[12,12,4]"}), [rules(EXPERTS)], inverse=True)
    assert {o.key: str(o.expr.spec) for o in back.outputs} == experts(1, 12)


def test_a_missing_expert_is_named() -> None:
    keys = experts(1, 8)
    del keys["l.0.e.3.w1"], keys["l.0.e.3.w3"]
    with pytest.raises(PlanError, match="don't fit") as e:
        make_plan(catalog(keys), [rules(EXPERTS)])
    assert "e counts to 7, and 3 is missing" in e.value.problems[0]


def test_experts_start_at_zero() -> None:
    with pytest.raises(PlanError) as e:
        make_plan(catalog({"l.0.e.1.w1": "f16[6,4]", "l.0.e.1.w3": "f16[6,4]"}), [rules(EXPERTS)])
    assert "and 0 is missing" in e.value.problems[0]


def test_an_expert_of_a_huge_number_is_refused_without_counting_to_it() -> None:
    far = "l.0.e.99999999999999999"
    with pytest.raises(PlanError) as e:
        make_plan(
            catalog({**experts(1, 2), f"{far}.w1": "f16[6,4]", f"{far}.w3": "f16[6,4]"}), [rules(EXPERTS)]
        )
    assert "2, 3, 4, 5, 6, 7, 8, 9, 10, 11, ... is missing" in e.value.problems[0]


def test_a_missing_part_is_named() -> None:
    keys = experts(1, 4)
    del keys["l.0.e.2.w3"]
    with pytest.raises(PlanError) as e:
        make_plan(catalog(keys), [rules(EXPERTS)])
    assert "7 of 8 parts" in e.value.problems[0]


def test_parts_of_other_shapes_are_an_error_before_anything_moves() -> None:
    keys = experts(1, 2) | {"l.0.e.1.w1": "f16[6,5]"}
    with pytest.raises(PlanError) as e:
        make_plan(catalog(keys), [rules(EXPERTS)])
    assert "concat along dimension 0 of shapes [6, 5] and [6, 4]" in e.value.problems[0]


QKV = """
    - id: qkv
      from: ["{i:int}.q.{p}", "{i:int}.k.{p}", "{i:int}.v.{p}"]
      to: "{i}.qkv.{p}"
      do: {fuse_qkv: {layout: blocks, order: [k, v, q], heads: heads}}
"""


def test_sizes_are_parameters() -> None:
    the = rules(QKV, "heads: {from_config: num_attention_heads}")
    keys = {f"0.{n}.weight": "f16[8,8]" for n in "qkv"}
    plan = make_plan(catalog(keys, {"num_attention_heads": 4}), [the])
    assert [t.entry.key for t in takes(plan.outputs[0].expr)] == ["0.k.weight", "0.v.weight", "0.q.weight"]
    with pytest.raises(PlanError, match="parameters without a value") as e:
        make_plan(catalog(keys), [the])
    assert e.value.problems[0] == "heads: config.json has no num_attention_heads"
    assert e.value.remedy == "give it: -p heads=..."


def test_one_tensor_under_two_names() -> None:
    the = rules('- {id: tie, from: "e.w", to: ["e.w", "head.w"], do: tie}')
    there = make_plan(catalog(["e.w"]), [the])
    assert [(o.key, o.sources) for o in there.outputs] == [("e.w", ("e.w",)), ("head.w", ("e.w",))]
    back = make_plan(catalog(["e.w", "head.w"]), [the], inverse=True)
    assert [(o.key, o.sources) for o in back.outputs] == [("e.w", ("e.w", "head.w"))]


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ('from: "a.{e:int}", to: "b", do: transpose', "there are parts along e; to has nothing"),
        ('from: "a.{e:int}", to: "b.{e}", do: {stack: {over: e}}', "which from has not on its own"),
        ('from: "a", to: ["b", "c"], do: transpose', "there are parts along nothing; to has the list"),
        ('from: ["a.{i}", "b"], to: "c", do: concat', "capture different things"),
        ('from: "a.{e}", to: "b", do: {stack: {over: e}}', "is no number"),
    ],
)
def test_axes_are_checked_when_the_pack_is_read(rule: str, message: str) -> None:
    with pytest.raises(PackError, match=message):
        rules(f"- {{id: r, {rule}}}")


def test_a_split_whose_parts_are_not_what_was_joined_does_not_come_back() -> None:
    the = rules('- {id: r, from: ["a", "b"], to: "c", do: concat}')
    with pytest.raises(PlanError, match="does not bring back|inverse"):
        make_plan(catalog({"a": "f16[2,4]", "b": "f16[4,4]"}), [the])


ROWS = '- {id: r, from: "l.{l:int}.e.{e:int}.w", to: "l.{l}.w", do: {OP: {over: e, parts: n}}}'


@pytest.mark.parametrize("op", ["concat", "interleave"])
def test_how_many_parts_a_capture_has_is_said_for_the_way_back(op: str) -> None:
    made = rules(ROWS.replace("OP", op), "n: {or_count: 'l.0.e.{e:int}.w'}")
    there = make_plan(catalog({f"l.0.e.{e}.w": "f16[2,4]" for e in range(12)}), [made])
    assert {o.key: str(o.expr.spec) for o in there.outputs} == {"l.0.w": "f16[24,4]"}
    back = make_plan(catalog({"l.0.w": "f16[24,4]"}), [made], inverse=True, params={"n": "12"})
    assert {o.key: str(o.expr.spec) for o in back.outputs} == {f"l.0.e.{e}.w": "f16[2,4]" for e in range(12)}


def test_a_capture_without_a_count_can_not_be_cut() -> None:
    made = rules('- {id: r, from: "w.{l:int}", to: "l.{l}.{e:int}", do: {split: {over: e}}}')
    with pytest.raises(PlanError) as e:
        make_plan(catalog({"w.0": "f16[4,4]"}), [made])
    assert "split over a capture into how many parts? say parts:" in e.value.problems[0]


@pytest.mark.parametrize("names", ["q: q, k: k, v: v", "v: v, q: q, k: k"])
def test_named_parts_of_a_fused_projection_may_stand_in_any_order(names: str) -> None:
    """The op knows query, key and value by name: the order of the mapping is nobody's choice."""
    fused = rules(f"- {{id: r, from: {{{names}}}, to: w, do: {{fuse_qkv: {{layout: blocks, heads: 1}}}}}}")
    parts = catalog(dict.fromkeys(["v", "k", "q"], "f32[2,1]"))
    assert make_plan(parts, [fused]).outputs[0].sources == ("q", "k", "v")
    split = rules(f"- {{id: r, from: w, to: {{{names}}}, do: {{split_qkv: {{layout: blocks, heads: 1}}}}}}")
    back = make_plan(parts, [split], inverse=True)
    assert back.outputs[0].sources == ("q", "k", "v")


def test_names_that_a_fused_projection_does_not_know() -> None:
    with pytest.raises(PackError, match="from: parts called a, k, v"):
        rules("- {id: r, from: {a: a, k: k, v: v}, to: w, do: {fuse_qkv: {layout: blocks, heads: 1}}}")
