"""Layouts: judged by the models that transformers itself makes, and by the packs that lead between them."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest

from remap.packs import available, load, load_layout
from remap.packs.layout import Expected
from remap.plan import make_plan
from remap.types import Catalog, Entry, TensorSpec

SIZES: dict[str, Any] = {
    "vocab_size": 64,
    "hidden_size": 24,
    "intermediate_size": 40,
    "num_hidden_layers": 12,
    "num_attention_heads": 4,
}
TOWER = {k: v for k, v in SIZES.items() if k != "vocab_size"}
GROUPED = {**SIZES, "num_key_value_heads": 2, "tie_word_embeddings": False}
LATENT = {
    "first_k_dense_replace": 3,
    "n_routed_experts": 12,
    "n_group": 2,
    "topk_group": 1,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 8,
    "n_shared_experts": 2,
    "q_lora_rank": 6,
    "kv_lora_rank": 6,
    "qk_nope_head_dim": 4,
    "qk_rope_head_dim": 2,
    "v_head_dim": 4,
}
TEXT = {**GROUPED, "hidden_size": 32}
CLIP_TOWER = {**TOWER, "model_type": "clip_vision_model", "image_size": 28, "patch_size": 14}
QWEN_TOWER = {"depth": 12, "embed_dim": 16, "hidden_size": 32, "num_heads": 2, "mlp_ratio": 2}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "gpt_neox/hf": ("GPTNeoXForCausalLM", SIZES),
    "opt/hf": ("OPTForCausalLM", {**SIZES, "ffn_dim": 40, "word_embed_proj_dim": 8}),
    "llama/hf": ("LlamaForCausalLM", {**GROUPED, "head_dim": 10}),
    "mixtral/hf5": ("MixtralForCausalLM", {**GROUPED, "num_local_experts": 12}),
    "qwen2moe/hf5": ("Qwen2MoeForCausalLM", {**GROUPED, "num_experts": 12, "moe_intermediate_size": 8}),
    "bloom/hf": ("BloomForCausalLM", {"vocab_size": 64, "hidden_size": 24, "n_layer": 12, "n_head": 4}),
    "falcon/hf": ("FalconForCausalLM", {**SIZES, "new_decoder_architecture": True, "num_kv_heads": 2}),
    "gpt2/hf": ("GPT2LMHeadModel", {"vocab_size": 64, "n_embd": 24, "n_layer": 12, "n_head": 4}),
    "bert/hf": ("BertForMaskedLM", SIZES),
    "vit/hf5": ("ViTForImageClassification", TOWER),
    "clip/hf": ("CLIPModel", {"text_config": SIZES, "vision_config": TOWER}),
    "dinov2/hf5": ("Dinov2ForImageClassification", {**TOWER, "mlp_ratio": 2}),
    "wav2vec2/hf": ("Wav2Vec2ForCTC", {**SIZES, "conv_dim": [16] * 7, "num_conv_pos_embedding_groups": 4}),
    "deepseek/hf5": ("DeepseekV3ForCausalLM", {**GROUPED, **LATENT, "num_key_value_heads": 4}),
    "llava/hf5": ("LlavaForConditionalGeneration", {"text_config": TEXT, "vision_config": CLIP_TOWER}),
    "qwen2vl/hf5": ("Qwen2VLForConditionalGeneration", {"text_config": TEXT, "vision_config": QWEN_TOWER}),
}
"""Layout -> the class whose keys it describes, and a small model's settings."""

PARAMS = {
    "layers": "12",
    "hidden": "24",
    "inner": "40",
    "vocab": "64",
    "heads": "4",
    "kv_heads": "2",
    "experts": "12",
    "embed": "8",
    "positions": "66",
    "types": "2",
    "shared": "8",
    "dense": "16",
    "moe_inner": "8",
    "nope": "4",
    "rope": "2",
    "v_dim": "4",
    "q_rank": "6",
    "kv_rank": "6",
    "text_layers": "12",
    "text_hidden": "24",
    "text_inner": "40",
    "vision_layers": "12",
    "vision_hidden": "16",
    "vision_inner": "32",
    "depth": "12",
    "rows": "48",
}
OTHER: dict[str, list[dict[str, str]]] = {
    "bert/legacy-norms": [{"norms": "legacy"}, {"norms": "legacy", "prefix": "bert"}],
    "bert/add-prefix": [{"prefix": "bare"}],
    "falcon/split-qkv": [
        {"new": "True", "two_norms": "present"},
        {"new": "False", "multi_query": "True", "kv_heads": "1", "rows": "36", "one_norm": "present"},
        {"new": "False", "multi_query": "False", "rows": "72", "post_norm": "present", "biases": "present"},
    ],
    "gpt_neox/llama-to-neox": [{"gqa": "blocks"}, {"gqa": "heads", "mlp": "w"}, {"kv_heads": "4"}],
    "magma/wrap-adapters": [{"mlp": "dense"}, {"mlp": "linear"}],
    "transformers/bloom-4-to-5": [{"prefix": "bare"}, {"prefix": "transformer"}],
    "transformers/clip-4-to-5": [{"towers": t, "projection": "8"} for t in ("both", "text", "vision")],
    "transformers/deepseek-4-to-5": [
        {"dense": "3", "correction": "present"},
        {"dense": "1", "queries": "plain"},
    ],
    "transformers/gptneox-4-to-5": [{"head": "embed_out"}],
    "transformers/dinov2-4-to-5": [{"prefix": "dinov2"}, {"mlp": "swiglu"}],
    "transformers/llava-4-to-5": [{"parts": "top", "newline": "present"}, {"parts": "nested"}],
    "transformers/qwen2vl-4-to-5": [{"parts": "top"}, {"parts": "nested"}],
    "wav2vec2/weight-norm": [{"norm": "hook"}, {"norm": "hook", "prefix": "wav2vec2"}],
}
"""Pack -> the parameters of the sources that it takes, where they are not its layout's own."""
NO_END = {
    "magma/image-prefix": "its source is any image encoder, by its own names",
    "wrappers/unwrap": "its source is any model that is wrapped, by its own names",
}
"""Packs without a layout at one end, and why."""
BETWEEN = [n for n in available() if load(n).source_layout and load(n).target_layout]


def entries(specs: dict[str, tuple[int, ...]]) -> dict[str, Entry]:
    kind = TensorSpec.parse("f32[]").dtype
    return {k: Entry(k, TensorSpec(kind, tuple(s))) for k, s in specs.items()}


@cache
def built(name: str) -> tuple[Any, dict[str, Entry]]:
    """The small model of a layout: its configuration, its keys."""
    transformers = pytest.importorskip("transformers", minversion="5")
    import torch

    kind, settings = MODELS[name]
    model_class = getattr(transformers, kind)
    config = model_class.config_class(**settings)
    with torch.device("meta"):
        model = model_class(config)
    return config, entries({k: v.shape for k, v in model.state_dict().items()})


@pytest.mark.parametrize("name", list(MODELS))
def test_a_layout_is_what_transformers_makes(name: str) -> None:
    config, found = built(name)
    layout = load_layout(name)
    values = layout.resolve(found.values(), config.to_dict())
    assert list(layout.differences(found.values(), values)) == []


CLASSES = {
    "colwise": {"rows"},
    "rowwise": {"columns", "innermost"},
    "packed_colwise": {"fused", "fused_columns"},
}
"""transformers' name of a partition -> what layouts call it: torch keeps a weight as [out, in]."""


@pytest.mark.parametrize("name", list(MODELS))
def test_a_layout_divides_its_keys_as_transformers_does(name: str) -> None:
    config, found = built(name)
    plan = config.get_text_config().base_model_tp_plan or {}
    layout = load_layout(name)
    expected = layout.expected(layout.resolve(found.values(), config.to_dict()))
    judged = 0
    for key, made in expected.items():
        module = ".".join("*" if s.isdigit() else s for s in key.split("."))
        for pattern, called in plan.items():
            if called in CLASSES and f".{module.removesuffix('.weight')}".endswith(f".{pattern}"):
                assert str(made.of.partition).partition("(")[0] in CLASSES[called], (key, called)
                judged += 1
    assert judged or not plan


CASES = [(name, more) for name in BETWEEN for more in OTHER.get(name, [{}])]


@pytest.mark.parametrize(("name", "more"), CASES, ids=[f"{n}-{'-'.join(m.values())}" for n, m in CASES])
def test_a_pack_leads_from_one_layout_to_the_other_and_back(name: str, more: dict[str, str]) -> None:
    pack = load(name)
    source, target = load_layout(pack.source_layout or ""), load_layout(pack.target_layout or "")
    given = {k: v for k, v in {**PARAMS, **more}.items() if k in source.params}
    expected = source.expected(source.resolve([], {}, given))
    before = entries({k: (3,) if e.shape is None else e.shape for k, e in expected.items() if _given(e)})
    asked = {k: v for k, v in {**PARAMS, **more}.items() if k in pack.all_params}
    plan = make_plan(Catalog("keylist", Path("k"), (), before), [pack], params=asked, partial=True)
    made = {o.key: Entry(o.key, o.expr.spec) for o in plan.outputs}
    known = {k: v for k, v in PARAMS.items() if k in target.params and k not in more}
    assert list(target.differences(made.values(), target.resolve(made.values(), {}, known))) == []
    back = make_plan(
        Catalog("keylist", Path("k"), (), made),
        [pack],
        inverse=True,
        params=asked,
        remembered={s.pack: s.params for s in plan.steps},
        partial=True,
    )
    assert {o.key: o.expr.spec for o in back.outputs} == {k: e.spec for k, e in before.items()}


def _given(expected: Expected) -> bool:
    """Has a source this key: no buffer, and no head of any shape that it may have?"""
    return not (expected.of.derived or (expected.shape is None and expected.of.optional))


def test_every_pack_has_a_layout_at_both_ends() -> None:
    without = {n for n in available() if n not in BETWEEN}
    assert without == NO_END.keys()
    assert load("magma/image-prefix").target_layout == "magma/neox"
