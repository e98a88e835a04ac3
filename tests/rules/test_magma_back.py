"""A trained MAGMA goes back to Hugging Face if its user says what becomes of adapters and image prefix."""

from __future__ import annotations

from pathlib import Path

import numpy
import pytest
from safetensors.numpy import load_file, save_file

import remap
from remap.errors import PlanError

LAYER = {
    "input_layernorm": "input_layernorm",
    "post_attention_layernorm": "post_attention_layernorm",
    "attention.attn_block.query_key_value": "attention.query_key_value",
    "attention.attn_block.dense": "attention.dense",
    "mlp.attn_block.dense_h_to_4h": "mlp.dense_h_to_4h",
    "mlp.attn_block.dense_4h_to_h": "mlp.dense_4h_to_h",
}
NEOX = {
    "0.word_embeddings.weight": "gpt_neox.embed_in.weight",
    **{f"2.{a}.{p}": f"gpt_neox.layers.0.{b}.{p}" for a, b in LAYER.items() for p in ("weight", "bias")},
    **{f"4.norm.{p}": f"gpt_neox.final_layer_norm.{p}" for p in ("weight", "bias")},
    "5.final_linear.weight": "embed_out.weight",
}
ADAPTERS = [
    f"2.{part}.adapter.{n}.{p}" for part in ("attention", "mlp") for n in "02" for p in ("weight", "bias")
]
PREFIX = ["0.image_prefix.enc.conv1.weight", "0.image_prefix.proj.weight", "0.image_prefix.ln.bias"]
DROP = {"adapters": "drop", "image_prefix": "drop"}


@pytest.fixture
def trained(tmp_path: Path) -> Path:
    chance = numpy.random.default_rng(0)
    file = tmp_path / "magma.safetensors"
    keys = [*NEOX, *ADAPTERS, *PREFIX]
    save_file({k: chance.standard_normal((4, 4), dtype=numpy.float32) for k in keys}, file)
    return file


def test_by_default_it_is_refused_and_the_message_names_the_parameters(trained: Path, tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="no rule owns") as e:
        remap.convert(trained, tmp_path / "hf.safetensors", ["magma/from-hf"], inverse=True)
    assert "-p adapters=drop drops 2.attention.adapter.0.bias (and 1 more like it)" in str(e.value)
    assert "-p image_prefix=drop drops 0.image_prefix.enc.conv1.weight" in str(e.value)
    assert not (tmp_path / "hf.safetensors").exists()


def test_one_choice_does_not_make_the_other(trained: Path, tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="-p image_prefix=drop") as e:
        remap.convert(
            trained, tmp_path / "hf.safetensors", ["magma/from-hf"], inverse=True, params={"adapters": "drop"}
        )
    assert "adapters=drop" not in str(e.value)


def test_what_was_dropped_stands_in_the_receipt(trained: Path, tmp_path: Path) -> None:
    there = tmp_path / "hf.safetensors"
    receipt = remap.convert(trained, there, ["magma/from-hf"], inverse=True, params=DROP)
    assert {d.key: d.rule for d in receipt.drops} == {
        **dict.fromkeys(ADAPTERS, "adapters"),
        **dict.fromkeys(PREFIX, "image-prefix"),
    }
    assert all(d.because for d in receipt.drops)
    before, after = load_file(trained), load_file(there)
    assert after.keys() == set(NEOX.values())
    assert all((after[new] == before[old]).all() for old, new in NEOX.items())
