"""Converted weights give the logits of transformers in the other library's own formulas (``decoders``).

Models of 12 layers with other heads for keys than for queries where the family has them; every parameter is
random, norms and biases too, so that no two of them can be exchanged unseen.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import decoders
import pytest
import torch
from safetensors.torch import load_file

from remap import api

LAYERS, HEADS, HIDDEN, WORDS = 12, 8, 32, 64
SIZES: dict[str, Any] = {
    "vocab_size": WORDS,
    "hidden_size": HIDDEN,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "attn_implementation": "eager",
}
Reference = Callable[..., torch.Tensor]
FALCON = "falcon/split-qkv"
GROUPED = {"kv_heads": 2}
CASES: dict[str, tuple[str, dict[str, Any], str, bool, Reference, dict[str, int]]] = {
    # class, settings, pack, is it applied backwards, reference, what more that is told
    "Falcon, new architecture": (
        "FalconForCausalLM",
        {"new_decoder_architecture": True, "num_kv_heads": 2, "alibi": False},
        FALCON,
        False,
        decoders.falcon,
        {},
    ),
    "Falcon, multi-query": (
        "FalconForCausalLM",
        {"new_decoder_architecture": False, "multi_query": True, "alibi": False},
        FALCON,
        False,
        decoders.falcon,
        {},
    ),
    "Falcon, as many keys as queries": (
        "FalconForCausalLM",
        {
            "new_decoder_architecture": False,
            "multi_query": False,
            "parallel_attn": False,
            "bias": True,
            "alibi": False,
        },
        FALCON,
        False,
        decoders.falcon,
        {},
    ),
    "BLOOM": ("BloomForCausalLM", {}, "bloom/split-qkv", False, decoders.bloom, {}),
    "GPT-2": ("GPT2LMHeadModel", {}, "gpt2/conv1d-to-linear", False, decoders.gpt2, {}),
    "OPT": (
        "OPTForCausalLM",
        {"ffn_dim": 48, "word_embed_proj_dim": HIDDEN},
        "opt/hf-to-metaseq",
        False,
        decoders.metaseq,
        {},
    ),
    "LLaMA in Megatron": (
        "LlamaForCausalLM",
        {
            "intermediate_size": 48,
            "num_key_value_heads": 2,
            "rms_norm_eps": 1e-5,
            "tie_word_embeddings": False,
        },
        "megatron/llama-to-hf",
        True,
        decoders.megatron,
        GROUPED,
    ),
}


@pytest.mark.parametrize("name", list(CASES))
def test_the_logits_are_those_of_transformers(tmp_path: Path, name: str) -> None:
    transformers = pytest.importorskip("transformers", minversion="5")
    kind, settings, pack, inverse, reference, more = CASES[name]
    model_class = getattr(transformers, kind)
    model = model_class(model_class.config_class(**SIZES, **settings)).eval()
    scramble(model)
    model.save_pretrained(tmp_path / "hf")
    tokens = torch.randint(0, WORDS, (12,), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        wanted = model(tokens[None]).logits[0]
    api.convert(tmp_path / "hf", tmp_path / "out.safetensors", [pack], inverse=inverse)
    weights = load_file(tmp_path / "out.safetensors")
    if name == "BLOOM":
        weights = {k.removeprefix("transformer."): v for k, v in weights.items()}
    found = reference(weights, tokens, LAYERS, HEADS, *more.values())
    assert torch.allclose(found, wanted, atol=1e-4, rtol=1e-4), (found - wanted).abs().max()
    assert not torch.allclose(wanted, torch.zeros_like(wanted), atol=1e-2)

    back = tmp_path / "back.safetensors"
    config = {} if not model.config else {"params": told(pack, model.config)}
    api.convert(tmp_path / "out.safetensors", back, [pack], inverse=not inverse, **config)
    (there,) = (tmp_path / "hf").glob("*.safetensors")
    before, after = load_file(there), load_file(back)
    assert before.keys() == after.keys()
    assert all(torch.equal(before[k], after[k]) for k in before), "and back, bit for bit"


def scramble(model: torch.nn.Module) -> None:
    """Every parameter random: norms around 1, what is added around 0."""
    for n, (name, p) in enumerate(model.named_parameters()):
        noise = torch.randn(p.shape, generator=torch.Generator().manual_seed(n))
        one = p.dim() == 1 and name.endswith("weight")
        p.data = noise * 0.1 + 1 if one else noise * 0.15


def told(pack: str, config: Any) -> dict[str, str]:
    """The parameters that a configuration gives, for a file that lies without one."""
    from remap.packs import load

    found = config.to_dict()
    values = {
        name: next((str(found[c]).lower() for c in param.from_config if found.get(c) is not None), "")
        for name, param in load(pack).params.items()
    }
    return {n: v for n, v in values.items() if v}
