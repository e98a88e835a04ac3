"""The plan: outputs in source order, what each is made of, drops, steps, JSON."""

from __future__ import annotations

import subprocess
import sys

import pytest
from packs.language import catalog, renamed, rules

from remap.dtypes import dtype
from remap.expr import Cast
from remap.packs import load
from remap.plan import make_plan

PYTHIA = {
    "gpt_neox.embed_in.weight": "f16[512,64]",
    **{
        f"gpt_neox.layers.{i}.{name}": spec
        for i in range(12)
        for name, spec in {
            "input_layernorm.weight": "f16[64]",
            "input_layernorm.bias": "f16[64]",
            "post_attention_layernorm.weight": "f16[64]",
            "post_attention_layernorm.bias": "f16[64]",
            "attention.query_key_value.weight": "f16[192,64]",
            "attention.query_key_value.bias": "f16[192]",
            "attention.dense.weight": "f16[64,64]",
            "attention.dense.bias": "f16[64]",
            "attention.rotary_emb.inv_freq": "f32[8]",
            "mlp.dense_h_to_4h.weight": "f16[256,64]",
            "mlp.dense_h_to_4h.bias": "f16[256]",
            "mlp.dense_4h_to_h.weight": "f16[64,256]",
            "mlp.dense_4h_to_h.bias": "f16[64]",
        }.items()
    },
    "gpt_neox.final_layer_norm.weight": "f16[64]",
    "gpt_neox.final_layer_norm.bias": "f16[64]",
    "embed_out.weight": "f16[512,64]",
}


def test_without_packs_the_plan_is_the_identity() -> None:
    plan = make_plan(catalog(PYTHIA), [])
    assert [o.key for o in plan.outputs] == list(PYTHIA)
    assert {o.op for o in plan.outputs} == {"copy"}


def test_pythia_for_magma() -> None:
    # Layer i is i+2, final norm L+3, head L+4: EleutherAI/gpt-neox, megatron/model/gpt2_model.py
    plan = make_plan(catalog(PYTHIA), [load("magma/from-hf")])
    found = {o.sources[0]: o.key for o in plan.outputs}
    assert found["gpt_neox.embed_in.weight"] == "0.word_embeddings.weight"
    assert found["gpt_neox.layers.11.mlp.dense_4h_to_h.bias"] == "13.mlp.attn_block.dense_4h_to_h.bias"
    assert found["gpt_neox.final_layer_norm.weight"] == "15.norm.weight"
    assert found["embed_out.weight"] == "16.final_linear.weight"
    assert len(plan.outputs) + len(plan.drops) == len(PYTHIA)
    assert {d.rule for d in plan.drops} == {"rotary-buffer"}
    assert [list(found)[n] for n in (0, -1)] == ["gpt_neox.embed_in.weight", "embed_out.weight"]


def test_magma_back_to_pythia() -> None:
    the = load("magma/from-hf")
    there = make_plan(catalog(PYTHIA), [the])
    specs = {o.key: str(o.expr.spec) for o in there.outputs}
    back = make_plan(catalog(specs), [the], inverse=True)
    assert {o.key: str(o.expr.spec) for o in back.outputs} == {
        k: v for k, v in PYTHIA.items() if not k.endswith("inv_freq")
    }
    assert back.steps[0].inverse


def test_adapters_have_no_place_in_hugging_face() -> None:
    from remap.errors import PlanError

    with pytest.raises(PlanError, match="no rule owns"):
        renamed(load("magma/from-hf"), ["2.attention.adapter.0.weight"], inverse=True)


def test_casting_changes_floats_only() -> None:
    plan = make_plan(catalog({"a": "f32[2]", "b": "i64[2]", "c": "bf16[2]"}), [], cast=dtype("bf16"))
    assert [str(o.expr.spec) for o in plan.outputs] == ["bf16[2]", "i64[2]", "bf16[2]"]
    assert [isinstance(o.expr, Cast) for o in plan.outputs] == [True, False, False]
    assert [o.op for o in plan.outputs] == ["cast", "copy", "copy"]


def test_packs_compose_in_order_and_back_in_reverse() -> None:
    packs = [load("gpt_neox/hf-to-neox"), load("gpt_neox/pipeline-to-sequential")]
    there = make_plan(catalog(PYTHIA), packs)
    assert there.outputs[0].key == "sequential.0.word_embeddings.weight"
    back = make_plan(catalog({o.key: str(o.expr.spec) for o in there.outputs}), packs, inverse=True)
    assert back.outputs[0].key == "gpt_neox.embed_in.weight"
    assert [s.pack for s in back.steps] == ["gpt_neox/pipeline-to-sequential", "gpt_neox/hf-to-neox"]


def test_the_document() -> None:
    the = rules("""
        - {id: r, from: "a", to: "b"}
        - {id: gone, drop: "c", because: no use}
    """)
    document = make_plan(catalog(["a", "c"]), [the]).to_json()
    assert document["version"] == 1
    assert document["outputs"] == [
        {"key": "b", "dtype": "float16", "shape": [4, 4], "sources": ["a"], "rule": "r", "op": "rename"}
    ]
    assert document["drops"] == [{"key": "c", "rule": "gone", "because": "no use"}]
    assert document["steps"] == [
        {"pack": "test/pack", "version": "1.0.0", "digest": the.digest, "inverse": False, "params": {}}
    ]


def test_planning_needs_no_torch() -> None:
    code = (
        "import sys\nfrom pathlib import Path\n"
        "from remap.packs import load\nfrom remap.plan import make_plan\n"
        "from remap.types import Catalog, Entry, TensorSpec\n"
        "k = 'gpt_neox.layers.0.attention.dense.weight'\n"
        "c = Catalog('x', Path('x'), (), {k: Entry(k, TensorSpec.parse('f16[4,4]'))})\n"
        "assert make_plan(c, [load('magma/from-hf')], partial=True).outputs\n"
        "assert 'torch' not in sys.modules and 'regex' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
