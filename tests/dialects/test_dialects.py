"""Keys taken apart and put together. What libraries wrote is in tests/data/adapters; the rest is from their
source, as the dialects' docstrings say."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remap.dialects import pairs, registry
from remap.dialects.base import AdapterTensor
from remap.dialects.modules import index, shipped
from remap.dialects.wrapping import bare, present, wrapped
from remap.errors import UsageError
from remap.types import TensorSpec

DATA = Path(__file__).parent.parent / "data" / "adapters"


def listed(name: str) -> dict[str, dict[str, object]]:
    return json.loads(gzip.decompress((DATA / f"{name}.json.gz").read_bytes()))


PEFT, SD = listed("peft_neox"), listed("sd_unet_lora")
WRITTEN = {
    **{f"peft {method}": ("peft", found["file"]) for method, found in PEFT.items()},
    **{f"in the model: {method}": ("peft-model", found["model"]) for method, found in PEFT.items()},
    **{f"sd {name}": (name, keys) for name, keys in SD.items()},
}


@pytest.mark.parametrize(("dialect", "keys"), WRITTEN.values(), ids=WRITTEN)
def test_a_key_taken_apart_is_put_together_again(dialect: str, keys: dict[str, object]) -> None:
    known = registry.get(dialect)
    tensors = [t for t in map(known.parse, keys) if t]
    assert tensors
    assert [known.spell(t) for t in tensors] == [t.key for t in tensors]
    both = "lora_magnitude_vector"  # diffusers' own word is PEFT's
    others = [d for d in registry.dialects() if d.name != dialect]
    assert not [k for k in keys for d in others if d.parse(k) and not k.endswith(both)]


WORDS = [
    *(
        "q_proj",
        "lora_head",
        "weight_gate",
        "lora_A",
        "token_adapter",
        "adapter",
        "base_layer",
        "module",
        "0",
    ),
    *("weight", "default", "modules_to_save", "processor", "lora", "alpha", "model", "to_k_lora"),
]
SPOKEN = {
    "peft": ("lora_A.weight", "lora_embedding_B", "lora_magnitude_vector", "ia3_l", "oft_R.weight"),
    "peft-model": ("lora_A.weight", "lora_embedding_B", "modules_to_save.weight"),
    "diffusers": ("lora_A.weight", "lora_B.weight"),
    "megatron": ("lora_A.weight", "lora_B.weight"),
    "magma-lora": ("lora_A.weight", "lora_B.weight"),
    "magma": ("adapter.0.weight", "adapter.2.bias", "adapter_scale"),
    "mlx": ("lora_A.weight", "lora_B.weight"),
}


@given(st.data())
def test_whatever_modules_are_called(data: st.DataObject) -> None:
    """Modules may have any word of any dialect as their name: they come back as they were."""
    dialect = data.draw(st.sampled_from(sorted(SPOKEN)))
    known = registry.get(dialect)
    module = ".".join(["net", *data.draw(st.lists(st.sampled_from(WORDS), min_size=1, max_size=4))])
    adapter = (
        data.draw(st.sampled_from(["default", "lora", "q_proj"])) if dialect == "peft-model" else "default"
    )
    tensor = AdapterTensor("", module, data.draw(st.sampled_from(SPOKEN[dialect])), adapter)
    key = known.spell(tensor)
    assert known.parse(key) == replace(tensor, key=key)


PARTS = [
    # A module may have an adapter's words in its name.
    ("peft", "base_model.model.pair_weighted_avg.l.lora_A.weight", "pair_weighted_avg.l", "lora_A.weight"),
    ("peft", "base_model.model.lora_head.lora_A.weight", "lora_head", "lora_A.weight"),
    ("peft", "base_model.model.h.0.weight_gate.lora_B.weight", "h.0.weight_gate", "lora_B.weight"),
    ("peft", "base_model.model.lora_A.lora_A.weight", "lora_A", "lora_A.weight"),
    ("peft", "base_model.vera_A", "", "vera_A"),
    ("peft", "prompt_embeddings", "", "prompt_embeddings"),
    ("peft", "unet.conv_in.lora_A.weight", "unet.conv_in", "lora_A.weight"),
    ("peft", "w.token_adapter.trainable_tokens_delta", "w", "token_adapter.trainable_tokens_delta"),
    ("peft-model", "base_model.model.q.lora_magnitude_vector.default.weight", "q", "lora_magnitude_vector"),
    ("peft-model", "score.modules_to_save.default.out.bias", "score", "modules_to_save.out.bias"),
    ("kohya", "lora_unet_conv_in.lora_down.weight", "conv_in", "lora_A.weight"),
    ("kohya", "lora_te2_text_projection.alpha", "text_projection", "alpha"),
    ("kohya", "lora_unet_b0_q.dora_scale", "b0_q", "lora_magnitude_vector"),
    ("diffusers", "unet.b.attn1.processor.to_out_lora.up.weight", "b.attn1.to_out.0", "lora_B.weight"),
    ("diffusers", "unet.b.attn1.processor.to_k_lora.down.weight", "b.attn1.to_k", "lora_A.weight"),
    ("diffusers", "text_encoder.l.0.attn.to_out_lora.up.weight", "l.0.attn.out_proj", "lora_B.weight"),
    ("diffusers", "text_encoder.l.0.q_proj.lora_linear_layer.down.weight", "l.0.q_proj", "lora_A.weight"),
    ("megatron", "decoder.0.linear_qkv.adapter.linear_in.weight", "decoder.0.linear_qkv", "lora_A.weight"),
    ("magma", "2.attention.adapter.0.weight", "2.attention", "adapter.0.weight"),
    ("magma", "lm.transformer.h.0.mlp.1.adapter.2.bias", "lm.transformer.h.0.mlp", "1.adapter.2.bias"),
    ("magma", "2.mlp.adapter_scale", "2.mlp", "adapter_scale"),
    ("magma", "0.image_prefix.enc.layer1.0.bn1.weight", "0.image_prefix", "enc.layer1.0.bn1.weight"),
    ("magma-lora", "2.attention.dense.downsample_adapter_lora", "2.attention.dense", "lora_A.weight"),
    ("mlx", "model.layers.0.q_proj.lora_b", "model.layers.0.q_proj", "lora_B.weight"),
]  # fmt: skip


@pytest.mark.parametrize(("dialect", "key", "module", "leaf"), PARTS)
def test_parts(dialect: str, key: str, module: str, leaf: str) -> None:
    found = registry.get(dialect).parse(key)
    assert found is not None
    assert (found.module, found.leaf) == (module, leaf)


@pytest.mark.parametrize(
    "key",
    [
        "base_model.model.lora_head.weight",
        "base_model.model.h.0.weight_gate.weight",
        "gpt_neox.layers.0.attention.dense.weight",
        "adapter.weight",
        "model.adapters.proj.weight",
        "lora_A",
        "blocks.0.alpha",
        "2.mlp.module.weight",
    ],
)
def test_a_weight_of_the_base_is_no_adapter_s(key: str) -> None:
    assert [d.name for d in registry.dialects() if d.name != "peft" and d.parse(key)] == []
    assert key == "lora_A" or registry.get("peft").parse(key) is None


def test_an_adapter_s_name_is_a_part_of_its_own() -> None:
    """Inserted where it belongs, and read from there, whatever it is called."""
    model = registry.get("peft-model")
    found = model.parse("base_model.model.q_proj.lora_A.lora.weight")
    assert found is not None
    assert (found.module, found.leaf, found.adapter) == ("q_proj", "lora_A.weight", "lora")
    named = AdapterTensor("", "enc.pair_weighted_avg.lin", "lora_A.weight", "default", "base_model.model")
    assert model.spell(named) == "base_model.model.enc.pair_weighted_avg.lin.lora_A.default.weight"


@pytest.mark.parametrize(
    ("name", "modules"),
    [
        ("conv_in", {("unet", "conv_in")}),
        ("mid_block_attentions_0_transformer_blocks_1_attn1_to_out_0",
         {("unet", "mid_block.attentions.0.transformer_blocks.1.attn1.to_out.0")}),
        ("transformer_blocks_3_ff_context_net_0_proj",
         {("transformer", "transformer_blocks.3.ff_context.net.0.proj")}),
        ("text_model_encoder_layers_11_self_attn_out_proj",
         {("text_encoder", "text_model.encoder.layers.11.self_attn.out_proj")}),
        ("b0_q", set()),
    ],
)  # fmt: skip
def test_shipped_lists_of_modules(name: str, modules: set[tuple[str, str]]) -> None:
    assert shipped(name) == modules


def test_a_base_s_list_may_mean_two_things() -> None:
    assert index(["a.b_c.weight", "a_b.c.weight"]) == {"a_b_c": {"a.b_c", "a_b.c"}}


def test_wrappers_are_put_in_once_and_taken_out_once() -> None:
    around = {"": ("base_model", "model"), "q": ("base_layer",), "h.0": ("a", "b")}
    for key in ("q.weight", "q.base_layer.weight", "h.0.a.b.c", "h.00.a", "other.q.weight"):
        assert bare(wrapped(key, around), around) == key
    assert wrapped("q.weight", around) == "base_model.model.q.base_layer.weight"
    assert present(around, ["q.base_layer.weight", "h.0.a.b.c", "h.0.a.w"]) == {"q": ("base_layer",)}


def test_factors_belong_together() -> None:
    peft = registry.get("peft")
    specs = {
        "q.lora_A.weight": "f32[2,4]", "q.lora_B.weight": "f32[4,3]",
        "k.lora_A.weight": "f32[2,4]",
        "v.lora_A.weight": "f32[2,4]", "v.lora_B.weight": "f32[0]",
        "o.hada_w1_a": "f32[8,2]", "o.hada_w1_b": "f32[2,4]",
    }  # fmt: skip
    tensors = [t for t in map(peft.parse, specs) if t]
    found = dict(pairs.broken(tensors, {k: TensorSpec.parse(s) for k, s in specs.items()}, "peft"))
    assert found["q.lora_A.weight"] == "its rank is 2, that of q.lora_B.weight is 3"
    assert found["k.lora_A.weight"] == "there is no k.lora_B.weight"
    assert found["v.lora_B.weight"].startswith("its shape is [0]: a factor has rows and columns")
    assert len(found) == 3


def test_the_ranks_of_transposed_factors() -> None:
    mlx = registry.get("mlx")
    specs = {"q.lora_a": "f32[4,2]", "q.lora_b": "f32[2,6]", "k.lora_a": "f32[2,4]", "k.lora_b": "f32[2,6]"}
    tensors = [t for t in map(mlx.parse, specs) if t]
    found = dict(pairs.broken(tensors, {k: TensorSpec.parse(s) for k, s in specs.items()}, "mlx"))
    assert set(found) == {"k.lora_a"}


def test_a_dialect_has_no_word_for_what_it_can_t_hold() -> None:
    tensor = AdapterTensor("q.lora_mid.weight", "q", "lora_mid.weight")
    assert registry.get("kohya").spell(tensor) == "q.lora_mid.weight"
    for name in ("diffusers", "megatron", "mlx", "magma-lora", "magma"):
        with pytest.raises(UsageError):
            registry.get(name).spell(tensor)
    with pytest.raises(UsageError, match="use one of peft"):
        registry.get("nobody")
