"""Small decoders in plain torch, each by the written rules of the layout that it reads: the judges of the
packs that lead to these layouts.

Each takes the converted weights by their names, and tokens, and gives the logits. They know nothing of remap.
"""

from __future__ import annotations

import torch
from torch.nn.functional import gelu, layer_norm, linear, relu, silu

Weights = dict[str, torch.Tensor]


def affine(x: torch.Tensor, w: Weights, at: str) -> torch.Tensor:
    """A linear layer, [out, in]."""
    return linear(x, w[f"{at}.weight"], w.get(f"{at}.bias"))


def normed(x: torch.Tensor, w: Weights, at: str) -> torch.Tensor:
    return layer_norm(x, x.shape[-1:], w[f"{at}.weight"], w[f"{at}.bias"], 1e-5)


def rms(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * weight


def turned(x: torch.Tensor) -> torch.Tensor:
    """[tokens, heads, size]: the first half of a head is turned against the second (rotate_half)."""
    half = x.shape[-1] // 2
    angles = torch.outer(torch.arange(len(x)).float(), 10000.0 ** (-torch.arange(half).float() / half))
    cos, sin = (f(torch.cat([angles, angles], -1))[:, None] for f in (torch.cos, torch.sin))
    return x * cos + torch.cat([-x[..., half:], x[..., :half]], -1) * sin


def attended(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, bias: torch.Tensor | float = 0.0
) -> torch.Tensor:
    """[tokens, heads, size] each, fewer heads in k and v; causal. Gives [tokens, heads * size]."""
    k, v = (t.repeat_interleave(q.shape[1] // t.shape[1], 1).transpose(0, 1) for t in (k, v))
    scores = q.transpose(0, 1) @ k.transpose(1, 2) / q.shape[-1] ** 0.5 + bias
    scores = scores + torch.full(scores.shape[-2:], float("-inf")).triu(1)
    return (scores.softmax(-1) @ v).transpose(0, 1).flatten(1)


def headed(x: torch.Tensor, heads: int) -> torch.Tensor:
    return x.unflatten(-1, (heads, -1))


def falcon(w: Weights, tokens: torch.Tensor, layers: int, heads: int) -> torch.Tensor:
    """Falcon, query, key and value by themselves: two norms and parallel, one norm and parallel, or one after
    the other."""
    x = w["transformer.word_embeddings.weight"][tokens]
    for i in range(layers):
        at = f"transformer.h.{i}"
        two, after = f"{at}.ln_mlp.weight" in w, f"{at}.post_attention_layernorm.weight" in w
        y = normed(x, w, f"{at}.ln_attn" if two else f"{at}.input_layernorm")
        q, k, v = (affine(y, w, f"{at}.self_attention.{n}_proj") for n in "qkv")
        size = q.shape[-1] // heads
        q, k, v = (headed(t, t.shape[-1] // size) for t in (q, k, v))
        out = affine(attended(turned(q), turned(k), v), w, f"{at}.self_attention.dense")
        z = normed(x, w, f"{at}.ln_mlp") if two else y
        if after:
            x = x + out
            z, out = normed(x, w, f"{at}.post_attention_layernorm"), torch.zeros_like(x)
        x = x + out + affine(gelu(affine(z, w, f"{at}.mlp.dense_h_to_4h")), w, f"{at}.mlp.dense_4h_to_h")
    return normed(x, w, "transformer.ln_f") @ w["transformer.word_embeddings.weight"].T


def bloom(w: Weights, tokens: torch.Tensor, layers: int, heads: int) -> torch.Tensor:
    """BLOOM, query, key and value by themselves; a linear bias instead of positions (heads a power of 2)."""
    x = normed(w["word_embeddings.weight"][tokens], w, "word_embeddings_layernorm")
    slopes = 2.0 ** (-8.0 / heads * torch.arange(1, heads + 1).float())
    bias = slopes[:, None, None] * torch.arange(len(tokens)).float()
    for i in range(layers):
        at = f"h.{i}"
        y = normed(x, w, f"{at}.input_layernorm")
        q, k, v = (headed(affine(y, w, f"{at}.self_attention.{n}_proj"), heads) for n in "qkv")
        x = x + affine(attended(q, k, v, bias), w, f"{at}.self_attention.dense")
        y = affine(normed(x, w, f"{at}.post_attention_layernorm"), w, f"{at}.mlp.dense_h_to_4h")
        x = x + affine(gelu(y, approximate="tanh"), w, f"{at}.mlp.dense_4h_to_h")
    return normed(x, w, "ln_f") @ w["word_embeddings.weight"].T


def gpt2(w: Weights, tokens: torch.Tensor, layers: int, heads: int) -> torch.Tensor:
    """GPT-2 with linear layers, [out, in]; query, key and value are blocks of c_attn."""
    x = w["transformer.wte.weight"][tokens] + w["transformer.wpe.weight"][: len(tokens)]
    for i in range(layers):
        at = f"transformer.h.{i}"
        fused = affine(normed(x, w, f"{at}.ln_1"), w, f"{at}.attn.c_attn")
        q, k, v = (headed(t, heads) for t in fused.chunk(3, -1))
        x = x + affine(attended(q, k, v), w, f"{at}.attn.c_proj")
        y = gelu(affine(normed(x, w, f"{at}.ln_2"), w, f"{at}.mlp.c_fc"), approximate="tanh")
        x = x + affine(y, w, f"{at}.mlp.c_proj")
    return normed(x, w, "transformer.ln_f") @ w["transformer.wte.weight"].T


def metaseq(w: Weights, tokens: torch.Tensor, layers: int, heads: int) -> torch.Tensor:
    """OPT in metaseq: qkv_proj holds key, value, query; positions begin at 2; the head is the embedding."""
    x = w["decoder.embed_tokens.weight"][tokens] + w["decoder.embed_positions.weight"][2 : 2 + len(tokens)]
    for i in range(layers):
        at = f"decoder.layers.{i}"
        fused = affine(normed(x, w, f"{at}.self_attn_layer_norm"), w, f"{at}.self_attn.qkv_proj")
        k, v, q = (headed(t, heads) for t in fused.chunk(3, -1))
        x = x + affine(attended(q, k, v), w, f"{at}.self_attn.out_proj")
        y = relu(affine(normed(x, w, f"{at}.final_layer_norm"), w, f"{at}.fc1"))
        x = x + affine(y, w, f"{at}.fc2")
    return normed(x, w, "decoder.layer_norm") @ w["decoder.embed_tokens.weight"].T


def megatron(w: Weights, tokens: torch.Tensor, layers: int, heads: int, kv_heads: int) -> torch.Tensor:
    """Megatron-core GPT with LLaMA's settings: linear_qkv lies group by group, the queries of a key-value
    head, its key, its value; linear_fc1 holds gate, then up."""
    x = w["embedding.word_embeddings.weight"][tokens]
    for i in range(layers):
        at = f"decoder.layers.{i}"
        fused = affine(rms(x, w[f"{at}.input_layernorm.weight"]), w, f"{at}.self_attention.linear_qkv")
        groups = fused.unflatten(-1, (kv_heads, heads // kv_heads + 2, -1))
        q, k, v = groups[:, :, :-2].flatten(1, 2), groups[:, :, -2], groups[:, :, -1]
        x = x + affine(attended(turned(q), turned(k), v), w, f"{at}.self_attention.linear_proj")
        gate, up = affine(rms(x, w[f"{at}.pre_mlp_layernorm.weight"]), w, f"{at}.mlp.linear_fc1").chunk(2, -1)
        x = x + affine(silu(gate) * up, w, f"{at}.mlp.linear_fc2")
    return rms(x, w["decoder.final_layernorm.weight"]) @ w["output_layer.weight"].T
