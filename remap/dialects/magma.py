"""MAGMA: bottleneck adapters around attention and MLP, an image prefix in front; in a later branch LoRA.

    2.attention.adapter.0.weight             [d/f, d]  down; 1 is the ReLU
    2.attention.adapter.2.weight             [d, d/f]  up; with a LayerNorm it is 0, they are 1 and 3
    2.attention.adapter_scale                where it is parallel and scaled
    2.attention.attn_block.dense.weight      the base's; ``module`` where the adapter is parallel
    lm.transformer.h.0.mlp.1.adapter.0.weight    Aleph Alpha's: the MLP is 0 of a Sequential, the adapter 1
    2.mlp.dense_h_to_4h.downsample_adapter_lora  [r, in] LoRA, scaled by 1/r; ``par_lin`` is the base's
    0.image_prefix.proj.weight               trained along: encoder, projection, LayerNorm

Sources: Aleph-Alpha/magma ``magma/adapters.py``, ``magma/magma.py`` (``add_adapters``), CERC-AAI/multimodal
``megatron/model/adapter.py`` (``AdapterWrapper``, ``ParallelLinearPEFT``), ``image_prefix.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from remap.dialects.base import AdapterTensor
from remap.dialects.plain import joined, leaf_of, word_for
from remap.errors import UsageError

PREFIX = "image_prefix"
LORA = {
    "downsample_adapter_lora": "lora_A.weight",
    "upsample_adapter_lora": "lora_B.weight",
}
_SCALE = "adapter_scale"


@dataclass(frozen=True)
class Magma:
    """The ``magma`` dialect: bottleneck adapters. Their leaves have no other words: ``adapter.0.weight``."""

    name = "magma"
    title = "MAGMA's adapters and image prefix"
    method = "bottleneck"

    def parse(self, key: str) -> AdapterTensor | None:
        return _prefix(key) or _bottleneck(key)

    def spell(self, tensor: AdapterTensor) -> str:
        if not is_magma(tensor):
            raise UsageError(f"{tensor.leaf} is no part of a bottleneck adapter", where=tensor.key)
        return joined(tensor.module, tensor.leaf)

    def around(
        self, tensors: Iterable[AdapterTensor], keys: Iterable[str] = ()
    ) -> Mapping[str, tuple[str, ...]]:
        """As the keys show it; without any, ``attn_block``, or ``module`` where there is a scale."""
        there = {".".join(s[: n + 1]) for s in (k.split(".") for k in keys) for n in range(len(s))}
        found: dict[str, tuple[str, ...]] = {}
        for t in tensors:
            if is_prefix(t):
                continue
            if t.leaf.startswith("1."):
                found[t.module] = ("0",)
            elif f"{t.module}.module" in there or t.leaf == _SCALE:
                found[t.module] = ("module",)
            else:
                found.setdefault(t.module, ("attn_block",))
        return found


@dataclass(frozen=True)
class MagmaLora:
    """The ``magma-lora`` dialect: LoRA around the parallel linear layers."""

    name = "magma-lora"
    title = "MAGMA's downsample_adapter_lora"
    method = "lora"

    def parse(self, key: str) -> AdapterTensor | None:
        prefix = _prefix(key)
        found = leaf_of(key, LORA)
        return prefix or (AdapterTensor(key, *found) if found else None)

    def spell(self, tensor: AdapterTensor) -> str:
        if is_prefix(tensor):
            return joined(tensor.module, tensor.leaf)
        return joined(tensor.module, word_for(tensor, LORA, self.name))

    def around(
        self, tensors: Iterable[AdapterTensor], keys: Iterable[str] = ()
    ) -> Mapping[str, tuple[str, ...]]:
        return {t.module: ("par_lin",) for t in tensors if not is_prefix(t)}


DIALECT = Magma()
LORA_DIALECT = MagmaLora()


def is_prefix(tensor: AdapterTensor) -> bool:
    """Is it the image prefix's?"""
    return tensor.module.rpartition(".")[2] == PREFIX


def is_magma(tensor: AdapterTensor) -> bool:
    """Is it a tensor that only MAGMA has a word for?"""
    return is_prefix(tensor) or _bottleneck(joined(tensor.module, tensor.leaf)) is not None


def _prefix(key: str) -> AdapterTensor | None:
    segments = key.split(".")
    if PREFIX not in segments[:-1]:
        return None
    at = segments.index(PREFIX) + 1
    return AdapterTensor(key, ".".join(segments[:at]), ".".join(segments[at:]))


def _bottleneck(key: str) -> AdapterTensor | None:
    segments = key.split(".")
    if len(segments) > 1 and segments[-1] == _SCALE:
        at = len(segments) - 1
    elif len(segments) > 3 and segments[-3] == "adapter" and segments[-2].isdecimal():
        at = len(segments) - 3
    else:
        return None
    if segments[at - 2 : at] == ["mlp", "1"]:
        at -= 1
    return AdapterTensor(key, ".".join(segments[:at]), ".".join(segments[at:]))
