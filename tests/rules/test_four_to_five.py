"""Checkpoints with the names of transformers 4, judged by transformers 5, which knows them: it renames and
merges them when it loads.

A model of transformers 5 is written under the names of 4 (the pack, backwards). What transformers makes of it
must be the model, bit for bit, and so must what the pack makes of it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from remap import api

COMMON: dict[str, Any] = {
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 12,
    "num_attention_heads": 4,
}
TEXT = {**COMMON, "vocab_size": 64, "num_key_value_heads": 2, "tie_word_embeddings": False}
EXPERTS = {"moe_intermediate_size": 8, "num_experts_per_tok": 2}
LATENT = {
    "n_routed_experts": 12,
    "n_group": 2,
    "topk_group": 1,
    "first_k_dense_replace": 2,
    "kv_lora_rank": 6,
    "qk_nope_head_dim": 4,
    "qk_rope_head_dim": 2,
    "v_head_dim": 4,
    **TEXT,
    **EXPERTS,
    "num_key_value_heads": 4,
}
TOWER = {**COMMON, "image_size": 28, "patch_size": 14}
EYES = {"depth": 12, "embed_dim": 8, "hidden_size": 16, "num_heads": 2}
CASES: list[tuple[str, str, dict[str, Any], str]] = [
    # pack, class, settings, a name of transformers 4 that the file must have
    ("mixtral", "MixtralForCausalLM", {**TEXT, "num_local_experts": 12}, ".experts.11.w3.weight"),
    ("qwen2moe", "Qwen2MoeForCausalLM", {**TEXT, **EXPERTS, "num_experts": 12}, ".experts.11.up_proj."),
    ("deepseek", "DeepseekV3ForCausalLM", {**LATENT, "q_lora_rank": 6}, "11.mlp.experts.11.gate_proj"),
    ("deepseek", "DeepseekV2ForCausalLM", {**LATENT, "q_lora_rank": None}, "11.mlp.experts.11.gate_proj"),
    ("gptneox", "GPTNeoXForCausalLM", {**COMMON, "vocab_size": 64}, "embed_out.weight"),
    ("vit", "ViTForImageClassification", TOWER, "layer.11.attention.attention.query"),
    ("dinov2", "Dinov2ForImageClassification", TOWER, "layer.11.attention.attention.query"),
    ("clip", "CLIPTextModel", {**COMMON, "vocab_size": 64}, "text_model.encoder.layers.11."),
    ("clip", "CLIPVisionModel", TOWER, "vision_model.encoder.layers.11."),
    (
        "llava",
        "LlavaForConditionalGeneration",
        {"text_config": TEXT, "vision_config": {**TOWER, "model_type": "clip_vision_model"}},
        "vision_tower.vision_model.pre_layrnorm",
    ),
    (
        "llava",
        "LlavaNextForConditionalGeneration",
        {"text_config": TEXT, "vision_config": {**TOWER, "model_type": "clip_vision_model"}},
        "image_newline",
    ),
    (
        "qwen2vl",
        "Qwen2VLForConditionalGeneration",
        {"text_config": TEXT, "vision_config": EYES},
        "visual.blocks.11.",
    ),
]


@pytest.mark.parametrize(("family", "kind", "settings", "old"), CASES, ids=[c[1] for c in CASES])
def test_what_remap_names_as_four_does_five_loads(
    tmp_path: Path, family: str, kind: str, settings: dict[str, Any], old: str
) -> None:
    transformers = pytest.importorskip("transformers", minversion="5")
    model_class = getattr(transformers, kind)
    torch.manual_seed(0)
    model = model_class(model_class.config_class(**settings)).eval()
    state = model.state_dict()
    pack = [f"transformers/{family}-4-to-5"]
    (tmp_path / "five").mkdir()
    torch.save(state, tmp_path / "five" / "pytorch_model.bin")
    four = tmp_path / "four"
    four.mkdir()
    api.convert(
        tmp_path / "five" / "pytorch_model.bin",
        four / "model.safetensors",
        pack,
        inverse=True,
        params=ORIGIN.get(kind),
    )
    names = load_file(four / "model.safetensors").keys()
    assert any(old in key for key in names)
    assert names != state.keys()

    model.config.save_pretrained(four)
    loaded, said = model_class.from_pretrained(four, output_loading_info=True)
    assert not any(said[k] for k in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    assert all(torch.equal(loaded.state_dict()[k], v) for k, v in state.items())

    api.convert(four / "model.safetensors", tmp_path / "again.safetensors", pack)
    again = load_file(tmp_path / "again.safetensors")
    assert again.keys() == state.keys()
    assert all(torch.equal(again[k], v) for k, v in state.items())


ORIGIN = {
    "GPTNeoXForCausalLM": None,
    "CLIPTextModel": {"towers": "text"},
    "CLIPVisionModel": {"towers": "vision"},
    "ViTForImageClassification": {"prefix": "vit"},
    "Dinov2ForImageClassification": {"prefix": "dinov2"},
    "LlavaForConditionalGeneration": {"parts": "nested"},
    "LlavaNextForConditionalGeneration": {"parts": "top"},
    "Qwen2VLForConditionalGeneration": {"parts": "top"},
}
"""What the names of 5 do not say about those of 4."""
