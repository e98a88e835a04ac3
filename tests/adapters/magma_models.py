"""MAGMA's adapters as its two projects build them, around a small block of plain torch modules.

Names and nesting are theirs (Aleph-Alpha/magma ``magma/adapters.py``, CERC-AAI/multimodal
``megatron/model/adapter.py``); what they compute is no matter here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import nn

SIZE, INNER = 8, 2


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.query_key_value = nn.Linear(SIZE, 3 * SIZE)
        self.dense = nn.Linear(SIZE, SIZE)


class MLP(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.module = nn.Linear(SIZE, SIZE)  # a module may be called so without an adapter, too
        self.dense_h_to_4h = nn.Linear(SIZE, 4 * SIZE)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.input_layernorm = nn.LayerNorm(SIZE)
        self.attention = Attention()
        self.mlp = MLP()


def bottleneck(*, layernorm: bool = False) -> nn.Sequential:
    norm = [nn.LayerNorm(SIZE)] if layernorm else []
    return nn.Sequential(*norm, nn.Linear(SIZE, INNER), nn.ReLU(), nn.Linear(INNER, SIZE))


class Adapter(nn.Module):
    """Aleph Alpha's, behind the MLP."""

    def __init__(self) -> None:
        super().__init__()
        self.adapter = bottleneck()


class Wrapper(nn.Module):
    """Around a module."""

    def __init__(self, module: nn.Module, *, layernorm: bool = False) -> None:
        super().__init__()
        self.adapter = bottleneck(layernorm=layernorm)
        self.attn_block = module


class Parallel(nn.Module):
    """Beside a module."""

    def __init__(self, module: nn.Module, *, scaled: bool = False) -> None:
        super().__init__()
        self.adapter = bottleneck()
        self.module = module
        if scaled:
            self.adapter_scale = nn.Parameter(torch.ones(1))


class ParallelLinearPEFT(nn.Module):
    """LoRA of a later branch."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.par_lin = linear
        self.downsample_adapter_lora = nn.Parameter(torch.zeros(INNER, linear.in_features))
        self.upsample_adapter_lora = nn.Parameter(torch.zeros(linear.out_features, INNER))


def _wrapped(wrap: Callable[[nn.Module], nn.Module]) -> nn.Module:
    block = Block()
    block.attention, block.mlp = wrap(block.attention), wrap(block.mlp)  # type: ignore[assignment]
    return block


def _sequential() -> nn.Module:
    block = Block()
    block.attention = Wrapper(block.attention)  # type: ignore[assignment]
    block.mlp = nn.Sequential(block.mlp, Adapter())  # type: ignore[assignment]
    return block


def _lora() -> nn.Module:
    block = Block()
    block.attention.dense = ParallelLinearPEFT(block.attention.dense)  # type: ignore[assignment]
    return block


FORMS: Mapping[str, Callable[[], nn.Module]] = {
    "around": lambda: _wrapped(Wrapper),
    "layernorm": lambda: _wrapped(lambda m: Wrapper(m, layernorm=True)),
    "parallel": lambda: _wrapped(Parallel),
    "scaled": lambda: _wrapped(lambda m: Parallel(m, scaled=True)),
    "sequential": _sequential,
    "lora": _lora,
}
"""A block with adapters, by their form."""


def model(block: Callable[[], nn.Module], layers: int = 12, seed: int = 0) -> nn.ModuleDict:
    """Layers under pipeline numbers, and an embedding in front; all values are random."""
    torch.manual_seed(seed)
    found = nn.ModuleDict({"0": nn.ModuleDict({"word_embeddings": nn.Embedding(16, SIZE)})})
    for n in range(layers):
        found[str(n + 2)] = block()
    with torch.no_grad():
        for value in found.parameters():
            value.copy_(torch.randn(value.shape))
    return found
