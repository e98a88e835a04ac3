"""Rules that add tensors: zeros, ones, numbers and random values, counted by a parameter."""

from __future__ import annotations

import pytest
import torch
from packs.language import catalog, rules

from remap.errors import PackError, PlanError
from remap.expr import blocks
from remap.plan import make_plan

SIZES = "layers: {or_count: 'h.{i:int}.w'}\nhidden: {or_shape: {key: 'h.{i:int}.w'}}"
KEPT = '- {keep: "h.{i:int}.w"}\n'
ADD = '- {id: bias, add: "h.{i:int}.{p:a|b}", each: {i: layers}, shape: [hidden, 2], fill: FILL}'


def test_one_for_each_layer_and_name() -> None:
    the = rules(KEPT + ADD.replace("FILL", "ones"), SIZES)
    plan = make_plan(catalog({"h.0.w": "bf16[3]", "h.1.w": "bf16[3]"}), [the])
    new = plan.outputs[2:]
    assert [o.key for o in new] == ["h.0.a", "h.0.b", "h.1.a", "h.1.b"]
    assert {(str(o.expr.spec), o.op, o.rule, o.sources) for o in new} == {("bf16[3,2]", "add", "bias", ())}
    assert torch.equal(blocks.evaluate(new[0].expr), torch.ones(3, 2, dtype=torch.bfloat16))


def test_the_way_back_drops_them() -> None:
    the = rules(KEPT + ADD.replace("FILL", "0.5"), SIZES)
    keys = {"h.0.w": "f16[3]", "h.0.a": "f16[3,2]", "h.0.b": "f16[3,2]"}
    back = make_plan(catalog(keys), [the], inverse=True)
    assert [o.key for o in back.outputs] == ["h.0.w"]
    assert [(d.key, d.rule) for d in back.drops] == [("h.0.a", "bias"), ("h.0.b", "bias")]


def test_what_is_there_is_not_added() -> None:
    the = rules(KEPT + '- {id: bias, add: "h.0.w", shape: [1]}')
    with pytest.raises(PlanError, match="more than one key would get"):
        make_plan(catalog(["h.0.w"]), [the])


def test_random_values_depend_on_seed_and_key_alone() -> None:
    def values(seed: int, budget: int) -> list[bytes]:
        the = rules(KEPT + ADD.replace("FILL", f"{{std: 0.02, seed: {seed}}}"), SIZES)
        plan = make_plan(catalog({"h.0.w": "f32[400]"}), [the])
        return [b"".join(map(bytes, blocks.blocks(o.expr, budget))) for o in plan.outputs[1:]]

    assert values(1, 64) == values(1, 1 << 20)
    assert values(1, 64) != values(2, 64)
    a, b = values(1, 1 << 20)
    assert a != b
    found = torch.frombuffer(bytearray(a), dtype=torch.float32)
    assert 0.017 < found.std() < 0.023  # 800 values of deviation 0.02
    assert abs(found.mean()) < 0.003


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ('{id: r, add: "a.{i:int}", shape: [1]}', "each: must count i"),
        ('{id: r, add: "a"}', "needs shape"),
        ('{id: r, add: "a.{x}", shape: [1]}', "lists its keys"),
        ('{id: r, add: "a", shape: [hiden]}', "no parameter is called 'hiden'"),
        ('{id: r, add: "a", shape: [1], dtype: f12}', "no element type"),
        ('{id: r, add: "a", shape: [1], to: "b"}', "no to, do or inverse"),
        ('{id: r, keep: "a", shape: [1]}', "belong to add"),
    ],
)
def test_a_broken_addition(rule: str, message: str) -> None:
    with pytest.raises(PackError, match=message):
        rules(f"- {rule}", SIZES)


def test_a_count_that_went_wrong_is_refused_without_counting_to_it() -> None:
    the = rules(
        KEPT + '- {id: r, add: "x.{i:int}", each: {i: n}, shape: [1]}', "n: {default: 99999999999999}"
    )
    with pytest.raises(PlanError, match="more than 1000000 new tensors"):
        make_plan(catalog(["h.0.w"]), [the])


ROTARY = '- {id: freq, add: "h.freq", shape: [4], dtype: f32, fill: {rotary: base}}'


def test_rotary_frequencies_are_those_of_the_model() -> None:
    # GPT-NeoX megatron/model/positional_embeddings.py: 1 / base ** (arange(0, dim, 2).float() / dim), dim 8
    plan = make_plan(catalog(["h.0.w"]), [rules(KEPT + ROTARY, "base: {default: 10000}")])
    wanted = 1.0 / (10000 ** (torch.arange(0, 8, 2).float() / 8))
    assert torch.allclose(blocks.evaluate(plan.outputs[1].expr), wanted, rtol=1e-6)


@pytest.mark.parametrize(
    ("fill", "message"),
    [
        ("{rotary: theta}", "no parameter is called 'theta'"),
        ("{rotary: 10, std: 1}", "fill: .*unknown field `std`"),
        ("{what: 1}", "fill: .*unknown field `what`|missing required field"),
    ],
)
def test_a_broken_fill(fill: str, message: str) -> None:
    with pytest.raises(PackError, match=message):
        rules(KEPT + f'- {{id: freq, add: "h.freq", shape: [4], fill: {fill}}}')
