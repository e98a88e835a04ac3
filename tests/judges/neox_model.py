"""GPT-NeoX in plain torch, tensor-parallel as GPT-NeoX is: column- and row-parallel layers, biases before or
after the one reduction, a padded vocabulary, grouped queries in blocks, a gated MLP, adapters.

Names, numbering and division are those of EleutherAI/gpt-neox (megatron/model/transformer.py,
mpu/layers.py). A weight's value comes from its name, whatever rank holds it, so that any two models of one
flavour are the same model.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F  # noqa: N812
from torch import nn

HIDDEN, HEADS, KV_HEADS, WORDS, MULTIPLE, TOKENS = 16, 4, 2, 120, 32, 8


@dataclass(frozen=True)
class Shape:
    """A model, and how it is divided.

    flavour   neox; new (linear1, no frequencies saved); magma (adapters); llama (RMSNorm, grouped, gated)
    parallel  attention and MLP are (gpt_j_residual)
    """

    flavour: str = "neox"
    layers: int = 4
    parallel: bool = True
    tied: bool = False
    tp: int = 1
    pp: int = 1

    @property
    def rows(self) -> int:
        """Rows of the padded vocabulary."""
        return math.ceil(WORDS / (MULTIPLE * self.tp)) * MULTIPLE * self.tp


class Ranks:
    """The tensor-parallel group of this process."""

    group: Any = None
    rank = 0
    count = 1


def _sum(x: torch.Tensor) -> torch.Tensor:
    if Ranks.count > 1:
        x = x.contiguous().clone()
        dist.all_reduce(x, group=Ranks.group)
    return x


class Reduced(torch.autograd.Function):
    """The sum over ranks; each has the gradient of it."""

    @staticmethod
    def forward(_: Any, x: torch.Tensor) -> torch.Tensor:
        return _sum(x)

    @staticmethod
    def backward(_: Any, grad: torch.Tensor) -> torch.Tensor:
        return grad


class Shared(torch.autograd.Function):
    """What every rank goes on with; the gradient is the sum of theirs."""

    @staticmethod
    def forward(_: Any, x: torch.Tensor) -> torch.Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(_: Any, grad: torch.Tensor) -> torch.Tensor:
        return _sum(grad)


class Gathered(torch.autograd.Function):
    """The ranks' parts side by side; each has the gradient of its own."""

    @staticmethod
    def forward(_: Any, x: torch.Tensor) -> torch.Tensor:
        if Ranks.count == 1:
            return x.view_as(x)
        pieces = [torch.empty_like(x) for _ in range(Ranks.count)]
        dist.all_gather(pieces, x.contiguous(), group=Ranks.group)
        return torch.cat(pieces, -1)

    @staticmethod
    def backward(_: Any, grad: torch.Tensor) -> torch.Tensor:
        return grad.chunk(Ranks.count, -1)[Ranks.rank].contiguous()


reduced, shared, gathered = Reduced.apply, Shared.apply, Gathered.apply


def made(key: str, *shape: int) -> torch.Tensor:
    """The whole value of a weight: multiples of 2**-12, so that sums of parts are exact."""
    generator = torch.Generator().manual_seed(zlib.crc32(key.encode()))
    value = torch.randn(shape, generator=generator) * 0.05 + ("norm.weight" in key or key.endswith("scale"))
    return torch.round(value * 4096) / 4096


def mine(whole: torch.Tensor, dim: int = 0) -> torch.Tensor:
    return whole.chunk(Ranks.count, dim)[Ranks.rank]


def blocks(whole: torch.Tensor, *rows: int) -> torch.Tensor:
    return torch.cat([mine(part) for part in whole.split(rows)])


def addend(whole: torch.Tensor) -> torch.Tensor:
    """This rank's part of a sum: 1/4 and 3/4 for two ranks, so that a mean or a copy of one shows."""
    if Ranks.count == 1:
        return whole
    part = 0.25 / (Ranks.count - 1)
    return whole * (0.75 if Ranks.rank == Ranks.count - 1 else part)


class Linear(nn.Module):
    """What this rank has of a layer; gives (x W^T, bias)."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None = None) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight.clone())
        self.bias = None if bias is None else nn.Parameter(bias.clone())

    def forward(self, x: torch.Tensor) -> Any:
        return F.linear(x, self.weight), self.bias


class RMSNorm(nn.Module):
    def __init__(self, key: str) -> None:
        super().__init__()
        self.scale = nn.Parameter(made(f"{key}.scale", HIDDEN))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.scale * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)


def norm_of(shape: Shape, key: str) -> nn.Module:
    if shape.flavour == "llama":
        return RMSNorm(key)
    norm = nn.LayerNorm(HIDDEN)
    for name, value in norm.named_parameters():
        value.data.copy_(made(f"{key}.{name}", HIDDEN))
    return norm


def row_bias(shape: Shape, key: str) -> torch.Tensor:
    whole = made(key, HIDDEN)
    return addend(whole) if shape.parallel else whole


class Rotary(nn.Module):
    def __init__(self, saved: bool) -> None:
        super().__init__()
        size = HIDDEN // HEADS
        self.register_buffer("inv_freq", 10000.0 ** -(torch.arange(0, size, 2) / size), persistent=saved)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        angle = torch.arange(x.shape[2])[:, None] * self.inv_freq.float()
        angle = torch.cat([angle, angle], -1)
        first, second = x.chunk(2, -1)
        return x * angle.cos() + torch.cat([-second, first], -1) * angle.sin()


class Attention(nn.Module):
    def __init__(self, shape: Shape, key: str) -> None:
        super().__init__()
        self.heads, self.kv_heads = HEADS // Ranks.count, KV_HEADS // Ranks.count
        self.grouped = shape.flavour == "llama"
        self.rotary_emb = Rotary(saved=shape.flavour in ("neox", "magma"))
        if self.grouped:
            few = HIDDEN * KV_HEADS // HEADS
            whole = made(f"{key}.query_key_value.weight", HIDDEN + 2 * few, HIDDEN)
            self.query_key_value = Linear(blocks(whole, HIDDEN, few, few))
            self.dense = Linear(mine(made(f"{key}.dense.weight", HIDDEN, HIDDEN), 1))
            return
        self.query_key_value = Linear(
            mine(made(f"{key}.query_key_value.weight", 3 * HIDDEN, HIDDEN)),
            mine(made(f"{key}.query_key_value.bias", 3 * HIDDEN)),
        )
        self.dense = Linear(
            mine(made(f"{key}.dense.weight", HIDDEN, HIDDEN), 1), row_bias(shape, f"{key}.dense.bias")
        )

    def forward(self, x: torch.Tensor) -> Any:
        batch, tokens, size = *x.shape[:2], HIDDEN // HEADS
        mixed, bias = self.query_key_value(x)
        mixed = mixed if bias is None else mixed + bias
        if self.grouped:
            cuts = [self.heads * size, self.kv_heads * size, self.kv_heads * size]
            q, k, v = (t.reshape(batch, tokens, -1, size) for t in mixed.split(cuts, -1))
            k, v = (t.repeat_interleave(self.heads // self.kv_heads, 2) for t in (k, v))
        else:
            q, k, v = mixed.reshape(batch, tokens, self.heads, 3 * size).chunk(3, -1)
        q, k, v = (t.transpose(1, 2) for t in (q, k, v))
        out = F.scaled_dot_product_attention(self.rotary_emb(q), self.rotary_emb(k), v, is_causal=True)
        return self.dense(out.transpose(1, 2).reshape(batch, tokens, -1))


class MLP(nn.Module):
    def __init__(self, shape: Shape, key: str) -> None:
        super().__init__()
        old = shape.flavour in ("neox", "magma")
        self.names = ("dense_h_to_4h", "dense_4h_to_h") if old else ("linear1", "linear2")
        up, down = self.names
        self.gated, inner = shape.flavour == "llama", 4 * HIDDEN
        if self.gated:
            first = Linear(blocks(made(f"{key}.{up}.weight", 2 * inner, HIDDEN), inner, inner))
            second = Linear(mine(made(f"{key}.{down}.weight", HIDDEN, inner), 1))
        else:
            first = Linear(
                mine(made(f"{key}.{up}.weight", inner, HIDDEN)), mine(made(f"{key}.{up}.bias", inner))
            )
            second = Linear(
                mine(made(f"{key}.{down}.weight", HIDDEN, inner), 1), row_bias(shape, f"{key}.{down}.bias")
            )
        self.add_module(up, first)
        self.add_module(down, second)

    def forward(self, x: torch.Tensor) -> Any:
        up, down = (getattr(self, n) for n in self.names)
        inner, bias = up(x)
        inner = inner if bias is None else inner + bias
        if not self.gated:
            return down(F.gelu(inner))
        plain, gate = inner.chunk(2, -1)
        return down(plain * F.silu(gate))


class Adapter(nn.Module):
    """MAGMA's wrapper: the block becomes ``attn_block``. Every rank has all of the adapter."""

    def __init__(self, block: nn.Module, key: str) -> None:
        super().__init__()
        self.adapter = nn.Sequential(
            nn.Linear(HIDDEN, HIDDEN // 4), nn.ReLU(), nn.Linear(HIDDEN // 4, HIDDEN)
        )
        for name, value in self.adapter.named_parameters():
            value.data.copy_(made(f"{key}.adapter.{name}", *value.shape))
        self.attn_block = block

    def forward(self, x: torch.Tensor) -> Any:
        out, bias = self.attn_block(x)
        return out + self.adapter(out), bias


class Layer(nn.Module):
    """Layers 2 to N+1."""

    def __init__(self, shape: Shape, index: int) -> None:
        super().__init__()
        self.parallel = shape.parallel
        self.input_layernorm = norm_of(shape, f"{index}.input_layernorm")
        self.post_attention_layernorm = norm_of(shape, f"{index}.post_attention_layernorm")
        wrap = "attn_block." if shape.flavour == "magma" else ""
        attention: nn.Module = Attention(shape, f"{index}.attention.{wrap}".rstrip("."))
        mlp: nn.Module = MLP(shape, f"{index}.mlp.{wrap}".rstrip("."))
        self.attention = Adapter(attention, f"{index}.attention") if wrap else attention
        self.mlp = Adapter(mlp, f"{index}.mlp") if wrap else mlp

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.parallel:  # biases go in before the one sum over ranks
            part = _with(self.attention(shared(self.input_layernorm(x))))
            return x + reduced(part + _with(self.mlp(shared(self.post_attention_layernorm(x)))))
        out, bias = self.attention(shared(self.input_layernorm(x)))
        x = x + _with((reduced(out), bias))
        out, bias = self.mlp(shared(self.post_attention_layernorm(x)))
        return x + _with((reduced(out), bias))


def _with(pair: Any) -> torch.Tensor:
    out, bias = pair
    return out if bias is None else out + bias


def padded(key: str, rows: int) -> torch.Tensor:
    whole = made(key, WORDS, HIDDEN)
    return mine(torch.cat([whole, whole.new_zeros(rows - WORDS, HIDDEN)]))


class Embedding(nn.Module):
    """Layer 0: this rank's rows of the vocabulary."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.word_embeddings = nn.Module()
        self.word_embeddings.weight = nn.Parameter(padded("0.word_embeddings.weight", shape.rows))

    @property
    def word_embeddings_weight(self) -> torch.Tensor:
        return self.word_embeddings.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        rows = self.word_embeddings.weight.shape[0]
        local = tokens - Ranks.rank * rows
        here = (local >= 0) & (local < rows)
        return reduced(self.word_embeddings.weight[local.clamp(0, rows - 1)] * here[..., None])


class FinalNorm(nn.Module):
    """Layer N+3."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.norm = norm_of(shape, f"{shape.layers + 3}.norm")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(x)


class FinalLinear(nn.Module):
    """Layer N+4."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.final_linear = Linear(padded(f"{shape.layers + 4}.final_linear.weight", shape.rows))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return gathered(self.final_linear(shared(x))[0])


def tied_logits(embedding: Embedding, x: torch.Tensor) -> torch.Tensor:
    return gathered(F.linear(shared(x), embedding.word_embeddings_weight))


def nothing(x: torch.Tensor) -> torch.Tensor:
    """Layers 1 and N+2: functions, which leave gaps in the numbering."""
    return x


def loss_of(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Over the real words only: padding has no say."""
    return F.cross_entropy(logits[..., :WORDS].flatten(0, 1), labels.flatten())


def batch() -> tuple[torch.Tensor, torch.Tensor]:
    tokens = torch.randint(0, WORDS, (2, TOKENS + 1), generator=torch.Generator().manual_seed(3))
    return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()


class Whole(nn.Module):
    """All layers in one module, keys ``sequential.N...`` (pipe_parallel_size 0)."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.sequential = nn.Sequential(*(make() for make in makers(shape)))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.sequential(tokens)


def makers(shape: Shape) -> list[Callable[[], nn.Module]]:
    """What makes each layer, the functions as modules without weights."""
    blocks_ = [lambda i=i: Layer(shape, i + 2) for i in range(shape.layers)]
    ends = [lambda: FinalNorm(shape), lambda: FinalLinear(shape)]
    return [lambda: Embedding(shape), nn.Identity, *blocks_, nn.Identity, *ends]


def truth(shape: Shape) -> dict[str, torch.Tensor]:
    """The undivided, unpadded weights, by pipeline keys."""
    Ranks.group, Ranks.rank, Ranks.count = None, 0, 1
    state = Whole(Shape(shape.flavour, shape.layers, shape.parallel)).state_dict()
    words = ("word_embeddings.weight", "final_linear.weight")
    return {
        k.removeprefix("sequential."): (v[:WORDS] if k.endswith(words) else v).clone()
        for k, v in state.items()
        if not (shape.tied and k.endswith(words[1]))
    }


def true_loss(shape: Shape) -> float:
    """The undivided model's loss on the one batch."""
    Ranks.group, Ranks.rank, Ranks.count = None, 0, 1
    tokens, labels = batch()
    model = Whole(Shape(shape.flavour, shape.layers, shape.parallel))
    if shape.tied:
        model.sequential[-1].final_linear.weight = model.sequential[0].word_embeddings.weight
    with torch.no_grad():
        return float(loss_of(model(tokens), labels))
