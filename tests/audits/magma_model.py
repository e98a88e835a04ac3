"""A MAGMA model in plain torch: GPT-NeoX layers by number, attention and MLP wrapped by adapters, an image
prefix in layer 0.

Names as in floatingsnake/gpt-neox, ``megatron/model/adapter.py`` and ``image_prefix.py`` (commit 28e24442),
whose layers are counted like GPT-NeoX's: 0 embedding and image prefix, 2.. layers, L+3 final norm, L+4
head.
"""

from __future__ import annotations

import torch
from torch import nn

LAYERS = 4
HIDDEN = 64
VOCABULARY = 512
DOWN = 16


class Attention(nn.Module):
    def __init__(self, lora: bool = False) -> None:
        super().__init__()
        qkv = nn.Linear(HIDDEN, 3 * HIDDEN)
        self.query_key_value: nn.Module = Lora(qkv) if lora else qkv
        self.dense = nn.Linear(HIDDEN, HIDDEN)


class Mlp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.dense_h_to_4h = nn.Linear(HIDDEN, 4 * HIDDEN)
        self.dense_4h_to_h = nn.Linear(4 * HIDDEN, HIDDEN)


class Lora(nn.Module):
    """As peft wraps a linear layer (``tuners/lora/layer.py``)."""

    def __init__(self, base: nn.Linear, rank: int = 2) -> None:
        super().__init__()
        self.base_layer = base
        self.lora_A = nn.ModuleDict({"default": nn.Linear(base.in_features, rank, bias=False)})
        self.lora_B = nn.ModuleDict({"default": nn.Linear(rank, base.out_features, bias=False)})


class Wrapped(nn.Module):
    """The wrapped module, then (or beside it) the adapter."""

    def __init__(self, inner: nn.Module, layernorm: bool, parallel: bool) -> None:
        super().__init__()
        norm = [nn.LayerNorm(HIDDEN)] if layernorm else []
        self.adapter = nn.Sequential(*norm, nn.Linear(HIDDEN, DOWN), nn.ReLU(), nn.Linear(DOWN, HIDDEN))
        if parallel:
            self.module = inner
            self.adapter_scale = nn.Parameter(torch.ones(1))
        else:
            self.attn_block = inner


class Layer(nn.Module):
    def __init__(self, adapters: bool, layernorm: bool, parallel: bool, lora: bool) -> None:
        super().__init__()
        self.input_layernorm = nn.LayerNorm(HIDDEN)
        self.post_attention_layernorm = nn.LayerNorm(HIDDEN)
        attention, mlp = Attention(lora), Mlp()
        self.attention = Wrapped(attention, layernorm, parallel) if adapters else attention
        self.mlp = Wrapped(mlp, layernorm, parallel) if adapters else mlp


class ImagePrefix(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.enc = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Conv2d(8, 8, 3))
        self.proj = nn.Linear(8, HIDDEN)
        self.ln = nn.LayerNorm(HIDDEN)


class Embedding(nn.Module):
    def __init__(self, image_prefix: bool) -> None:
        super().__init__()
        self.word_embeddings = nn.Embedding(VOCABULARY, HIDDEN)
        if image_prefix:
            self.image_prefix = ImagePrefix()


class Norm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(HIDDEN)


class Head(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.final_linear = nn.Linear(HIDDEN, VOCABULARY, bias=False)


def build(
    *,
    image_prefix: bool = True,
    adapters: bool = True,
    layernorm: bool = False,
    parallel: bool = False,
    lora: bool = False,
) -> nn.Module:
    layers = {str(i + 2): Layer(adapters, layernorm, parallel, lora) for i in range(LAYERS)}
    return nn.ModuleDict(
        {"0": Embedding(image_prefix), **layers, str(LAYERS + 3): Norm(), str(LAYERS + 4): Head()}
    )
