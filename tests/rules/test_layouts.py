"""Layouts: judged by the models that transformers itself makes, and by the packs that lead between them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from remap.packs import available, load, load_layout
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
}
BETWEEN = [n for n in available() if load(n).source_layout and load(n).target_layout]


def entries(specs: dict[str, tuple[int, ...]]) -> dict[str, Entry]:
    kind = TensorSpec.parse("f32[]").dtype
    return {k: Entry(k, TensorSpec(kind, tuple(s))) for k, s in specs.items()}


@pytest.mark.parametrize("name", list(MODELS))
def test_a_layout_is_what_transformers_makes(name: str) -> None:
    transformers = pytest.importorskip("transformers", minversion="5")
    import torch

    kind, settings = MODELS[name]
    model_class = getattr(transformers, kind)
    config = model_class.config_class(**settings)
    with torch.device("meta"):
        model = model_class(config)
    found = entries({k: v.shape for k, v in model.state_dict().items()}).values()
    layout = load_layout(name)
    assert list(layout.differences(found, layout.resolve(found, config.to_dict()))) == []


@pytest.mark.parametrize("name", BETWEEN)
def test_a_pack_leads_from_one_layout_to_the_other_and_back(name: str) -> None:
    pack = load(name)
    source, target = load_layout(pack.source_layout or ""), load_layout(pack.target_layout or "")
    given = {k: v for k, v in PARAMS.items() if k in source.params}
    expected = source.expected(source.resolve([], {}, given))
    before = entries({k: e.shape for k, e in expected.items() if e.shape is not None and not e.of.derived})
    asked = {k: v for k, v in PARAMS.items() if k in pack.all_params}
    plan = make_plan(Catalog("keylist", Path("k"), (), before), [pack], params=asked, partial=True)
    made = {o.key: Entry(o.key, o.expr.spec) for o in plan.outputs}
    more = {k: v for k, v in PARAMS.items() if k in target.params}
    assert list(target.differences(made.values(), target.resolve(made.values(), {}, more))) == []
    back = make_plan(
        Catalog("keylist", Path("k"), (), made),
        [pack],
        inverse=True,
        params=asked,
        remembered={s.pack: s.params for s in plan.steps},
        partial=True,
    )
    assert {o.key: o.expr.spec for o in back.outputs} == {k: e.spec for k, e in before.items()}
