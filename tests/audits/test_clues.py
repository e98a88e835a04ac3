"""What a single key, or two shapes of it, tell."""

from __future__ import annotations

import pytest
from audits.tables import run

from remap.audits.clues.diagnosis import diagnose
from remap.audits.names.adapters import kind, partner
from remap.audits.names.buffers import is_derivable
from remap.audits.names.parts import is_flat, is_optimizer, is_quantisation, vision_root
from remap.types import TensorSpec


@pytest.mark.parametrize(
    ("key", "found", "wanted", "words"),
    [
        ("a.weight", (4, 8), (8, 4), "transposed: [4, 8] against [8, 4]"),
        ("a.weight", (32,), (8, 4), "flattened, or in another shape"),
        ("a.weight", (2, 16), (8, 4), "flattened, or in another shape"),
        (
            "wte.weight",
            (50257, 4),
            (50304, 4),
            "vocabulary of 50257, the target has 50304 (the target's is padded",
        ),
        ("lm_head.weight", (50400, 4), (50258, 4), "(the source's is padded"),
        ("a.weight", (4, 4), (8, 4), "one of 2 tensor-parallel parts along dimension 0"),
        ("wte.weight", (25152, 4), (50304, 4), "one of 2 tensor-parallel parts along dimension 0"),
        ("a.weight", (8, 4), (8, 2), "whole, where the target holds one of 2 parts along dimension 1"),
        ("mlp.experts.w", (8, 4, 4), (60, 4, 4), "8 experts, the target has 60"),
        ("a.weight", (7, 4), (8, 4), "dimension 0 is 7, the target's is 8"),
        ("a.weight", (7, 5), (8, 4), "2 dimensions differ"),
        ("a.weight", (4,), (8, 4), "another number of dimensions"),
    ],
)
def test_two_shapes(key: str, found: tuple[int, ...], wanted: tuple[int, ...], words: str) -> None:
    assert words in diagnose(key, found, wanted)


@pytest.mark.parametrize(
    ("key", "spec", "yes"),
    [
        ("h.0.attn.bias", "u8[1,1,8,8]", True),
        ("h.0.attn.bias", "f32[8]", False),
        ("h.0.attn.c_attn.bias", "f32[12]", False),
        ("h.0.attn.c_attn.bias", "f32[1,1,8,8]", False),
        ("l.attention.masked_bias", "f32[]", True),
        ("l.self_attn.rotary_emb.inv_freq", "f32[8]", True),
        ("rope.rotary_emb.freqs", "f32[8]", False),  # learned, in some
        ("embeddings.position_ids", "i64[1,8]", True),
        ("embeddings.position_embeddings.weight", "f32[8,4]", False),
        ("bn.num_batches_tracked", "i64[]", True),
        ("bn.running_mean", "f32[8]", False),
        ("decoder.version", "f32[1]", True),
    ],
)
def test_buffers_that_a_model_computes(key: str, spec: str, yes: bool) -> None:
    assert is_derivable(key, TensorSpec.parse(spec)) is yes


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("l.q.lora_A.default.weight", "lora_A"),
        ("2.attention.adapter.0.weight", "adapter"),
        ("lm.transformer.h.0.mlp.1.adapter.0.weight", "adapter"),
        ("l.mlp.adapter_scale", "adapter_scale"),
        ("prompt_embeddings", "prompt_embeddings"),
        ("l.ia3_l", "ia3_l"),
        ("l.lokr_w1", "lokr_w1"),
        ("l.color_A.weight", ""),
        ("l.adapters_norm.weight", ""),
        ("l.attention.dense.weight", ""),
    ],
)
def test_adapters(key: str, name: str) -> None:
    assert kind(key) == name


def test_the_other_factor() -> None:
    assert partner("q.lora_A.default.weight") == "q.lora_B.default.weight"
    assert partner("q.lora_up.weight") == "q.lora_down.weight"
    assert partner("q.weight") == ""


def test_parts() -> None:
    assert vision_root("0.image_prefix.enc.0.weight") == "0.image_prefix"
    assert vision_root("model.visual_norm.weight") == ""
    assert is_quantisation("l.q.qweight")
    assert is_quantisation("l.w.quant_state.bitsandbytes__nf4")
    assert not is_quantisation("l.scales_net.weight")
    assert is_optimizer("app.optimizer.state.w.exp_avg")
    assert not is_optimizer("head.optimizer_net.weight")
    assert is_flat("l._flat_param")
    assert not is_flat("flat_parameters.weight")


def test_a_stage_in_the_middle_of_a_pipeline() -> None:
    """The target is the stage with layers 2 and 3; the checkpoint has all."""
    source = {f"l.{i}.w": [2] for i in range(6)}
    report = run(source, {k: s for k, s in source.items() if k in ("l.2.w", "l.3.w")})
    assert {f.key for f in report.of("unexpected-stage")} == {"l.0.w", "l.1.w", "l.4.w", "l.5.w"}
    assert report.of("unexpected-stage")[0].detail == "the target has layers 2 to 3 of l, not 0"


def test_a_tower_of_which_a_part_is_there_is_not_absent() -> None:
    wanted = {"w": [1], "visual.a.weight": [2], "visual.b.weight": [3]}
    report = run({"w": [1], "visual.a.weight": [2]}, wanted, "magma")
    assert [f.key for f in report.of("missing-parameter")] == ["visual.b.weight"]
    assert not report.passed


def test_an_adapter_of_another_kind_is_not_a_part_of_this_one() -> None:
    """A MAGMA checkpoint with its adapters, into a model that was given LoRA as well."""
    source = {"l.mlp.adapter.0.weight": [2, 4], "l.q.weight": [4, 3]}
    wanted = {
        **source,
        "l.q.lora_A.weight": [2, 3],
        "l.q.lora_B.weight": [4, 2],
        "l.mlp.adapter.2.weight": [4, 2],
    }
    report = run(source, wanted, "lora")
    assert {f.key for f in report.of("missing-adapter")} == {"l.q.lora_A.weight", "l.q.lora_B.weight"}
    assert [f.key for f in report.of("partial-adapter")] == ["l.mlp.adapter.2.weight"]


def test_the_nearest_name_is_told_for_every_layer() -> None:
    wanted = {f"layers.{i}.{p}": [8, 4] for i in range(300) for p in ("self_attn.q", "mlp.up", "norm")}
    source = {k.replace("self_attn", "attn").replace("up", "upp"): s for k, s in wanted.items()}
    report = run(source, wanted)
    details = {f.key: f.detail for f in report.of("missing-parameter")}
    assert len(details) == 600
    for i in (0, 7, 299):
        assert details[f"layers.{i}.self_attn.q"] == (
            f"nearest is layers.{i}.attn.q, which the target has no place for"
        )
        assert f"nearest is layers.{i}.mlp.upp," in details[f"layers.{i}.mlp.up"]


def test_the_nearest_name_is_told_where_its_number_differs() -> None:
    (found,) = run({"block.3.w": [4]}, {"blocks.5.w": [4]}).of("missing-parameter")
    assert found.detail.startswith("nearest is block.3.w,")


def test_a_name_with_a_number_is_no_nearer_for_that() -> None:
    source = {"gpt_neox.layers.0.input_layernorm.weight": [4], "gpt_neox.final_layer_norm.weight": [4]}
    (found,) = run(source, {"7.norm.weight": [4]}).of("missing-parameter")
    assert "gpt_neox.final_layer_norm.weight" in found.detail
