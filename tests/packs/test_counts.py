"""Layers that are counted are complete: a checkpoint with holes is never planned as a whole one."""

from __future__ import annotations

import pytest

from remap.errors import PlanError
from remap.packs import load
from remap.plan import make_plan
from remap.types import Catalog, Entry, TensorSpec


def pythia(*layers: int, without: str = "", config: dict | None = None) -> Catalog:
    """The key list of a Pythia with just these layers."""
    names = ["gpt_neox.embed_in.weight", "embed_out.weight"]
    names += [f"gpt_neox.final_layer_norm.{p}" for p in ("weight", "bias")]
    for i in layers:
        for part in (
            "input_layernorm",
            "post_attention_layernorm",
            "attention.query_key_value",
            "attention.dense",
            "mlp.dense_h_to_4h",
            "mlp.dense_4h_to_h",
        ):
            names += [f"gpt_neox.layers.{i}.{part}.{p}" for p in ("weight", "bias")]
    spec = TensorSpec.parse("f16[8]")
    entries = {k: Entry(k, spec) for k in names if k != without}
    return Catalog("keys", None, (), entries, config=config or {})


def plan(catalog: Catalog, *, inverse: bool = False):
    return make_plan(catalog, [load("gpt_neox/hf-to-neox")], inverse=inverse)


@pytest.mark.parametrize("last", [5, 6])
def test_a_gap_in_the_layers_is_refused_and_named(last):
    # Layer 5 of 4 would be written into the final norm's file, layer 6 into the head's.
    with pytest.raises(PlanError, match=rf"4 are there, without {', '.join(map(str, range(3, last)))}"):
        plan(pythia(0, 1, 2, last))


def test_layers_that_do_not_begin_at_the_beginning_are_refused():
    with pytest.raises(PlanError, match="3 are there, without 0"):
        plan(pythia(1, 2, 3))


def test_fewer_layers_than_the_config_says_are_refused():
    with pytest.raises(PlanError, match=r"matched 12 keys; it expects \(4\*layers\) = 16"):
        plan(pythia(0, 1, 2, config={"num_hidden_layers": 4}))


@pytest.mark.parametrize(
    "name", ["attention.dense.weight", "attention.query_key_value.bias", "mlp.dense_h_to_4h.weight"]
)
def test_a_missing_tensor_is_refused(name):
    with pytest.raises(PlanError, match=r"expects \([24]\*layers\)"):
        plan(pythia(0, 1, 2, 3, without=f"gpt_neox.layers.2.{name}"))


def test_a_missing_tensor_is_refused_on_the_way_back_too():
    there = plan(pythia(0, 1, 2, 3))
    entries = {o.key: Entry(o.key, o.expr.spec) for o in there.outputs if o.key != "4.attention.dense.weight"}
    with pytest.raises(PlanError, match=r"expects \(4\*layers\)"):
        plan(Catalog("keys", None, (), entries), inverse=True)
