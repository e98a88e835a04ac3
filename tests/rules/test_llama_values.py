"""LLaMA, Hugging Face to Meta: the converted weights give the same logits in Meta's own formulas.

The reference is written from Meta's ``llama/model.py``: neighbours are rotated as complex numbers.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch.nn.functional import silu

from remap import api

HEADS, KV, HIDDEN, LAYERS, THETA = 8, 2, 64, 12, 10000.0
SIZE = HIDDEN // HEADS


def norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * weight


def rotated(x: torch.Tensor) -> torch.Tensor:
    """[tokens, heads, size]: each pair of neighbours is a complex number that is turned."""
    freqs = 1.0 / THETA ** (torch.arange(0, SIZE, 2)[: SIZE // 2].float() / SIZE)
    angles = torch.outer(torch.arange(len(x)).float(), freqs)
    turn = torch.polar(torch.ones_like(angles), angles)[:, None]
    pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * turn).flatten(2)


def attention(x: torch.Tensor, w: dict[str, torch.Tensor], at: str) -> torch.Tensor:
    q = rotated((x @ w[f"{at}.wq.weight"].T).view(-1, HEADS, SIZE))
    k = rotated((x @ w[f"{at}.wk.weight"].T).view(-1, KV, SIZE))
    v = (x @ w[f"{at}.wv.weight"].T).view(-1, KV, SIZE)
    k, v = (t.repeat_interleave(HEADS // KV, 1).transpose(0, 1) for t in (k, v))
    scores = q.transpose(0, 1) @ k.transpose(1, 2) / SIZE**0.5
    scores = scores + torch.full(scores.shape[-2:], float("-inf")).triu(1)
    return (scores.softmax(-1) @ v).transpose(0, 1).flatten(1) @ w[f"{at}.wo.weight"].T


def meta_llama(tokens: torch.Tensor, w: dict[str, torch.Tensor]) -> torch.Tensor:
    x = w["tok_embeddings.weight"][tokens]
    for i in range(LAYERS):
        x = x + attention(norm(x, w[f"layers.{i}.attention_norm.weight"]), w, f"layers.{i}.attention")
        y = norm(x, w[f"layers.{i}.ffn_norm.weight"])
        up = silu(y @ w[f"layers.{i}.feed_forward.w1.weight"].T) * (
            y @ w[f"layers.{i}.feed_forward.w3.weight"].T
        )
        x = x + up @ w[f"layers.{i}.feed_forward.w2.weight"].T
    return norm(x, w["norm.weight"]) @ w["output.weight"].T


def test_logits_are_those_of_transformers(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=128,
        hidden_size=HIDDEN,
        intermediate_size=96,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=KV,
        rms_norm_eps=1e-5,
        tie_word_embeddings=False,
        attn_implementation="eager",
    )
    model = transformers.LlamaForCausalLM(config).eval()
    for name, p in model.named_parameters():
        if "norm" in name:
            torch.nn.init.normal_(p, 1.0, 0.1)
    model.save_pretrained(tmp_path / "hf")
    api.convert(tmp_path / "hf", tmp_path / "meta.safetensors", ["llama/hf-to-meta"])
    tokens = torch.randint(0, 128, (16,))
    with torch.no_grad():
        wanted = model(tokens[None]).logits[0]
        found = meta_llama(tokens, load_file(tmp_path / "meta.safetensors"))
    assert torch.allclose(found, wanted, atol=1e-5)

    without_permutation = dict(load_file(tmp_path / "meta.safetensors"))
    for i in range(LAYERS):
        kept = model.state_dict()[f"model.layers.{i}.self_attn.q_proj.weight"]
        without_permutation[f"layers.{i}.attention.wq.weight"] = kept
    assert not torch.allclose(meta_llama(tokens, without_permutation), wanted, atol=1e-4)


def test_the_way_back_is_bit_for_bit(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
    )
    transformers.LlamaForCausalLM(config).save_pretrained(tmp_path / "hf")
    api.convert(tmp_path / "hf", tmp_path / "meta.safetensors", ["llama/hf-to-meta"])
    api.convert(
        tmp_path / "meta.safetensors", tmp_path / "back.safetensors", ["llama/hf-to-meta"], inverse=True
    )
    (there,) = (tmp_path / "hf").glob("*.safetensors")
    before, after = load_file(there), load_file(tmp_path / "back.safetensors")
    assert before.keys() == after.keys()
    assert all(torch.equal(before[k], after[k]) for k in before)
