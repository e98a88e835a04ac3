"""Megatron-Bridge and NeMo: an adapter of two linear layers beside the module that it wraps.

    decoder.layers.0.self_attention.linear_qkv.adapter.linear_in.weight     [r, in]
    decoder.layers.0.self_attention.linear_qkv.adapter.linear_out.weight    [out, r]
    decoder.layers.0.self_attention.linear_qkv.to_wrap.weight               the base's

Rank and alpha are in the run's configuration. Sources: Megatron-Bridge ``peft/lora_layers.py``
(``LoRALinear``), ``peft/adapter_wrapper.py`` (``to_wrap``), ``peft/utils.py`` (``ParallelLinearAdapter``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from remap.dialects.base import AdapterTensor
from remap.dialects.plain import joined, leaf_of, word_for

LEAVES = {
    "adapter.linear_in.weight": "lora_A.weight",
    "adapter.linear_out.weight": "lora_B.weight",
}


@dataclass(frozen=True)
class Megatron:
    """The ``megatron`` dialect: see the module's docstring."""

    name = "megatron"
    title = "Megatron's adapter.linear_in and linear_out"
    method = "lora"

    def parse(self, key: str) -> AdapterTensor | None:
        found = leaf_of(key, LEAVES)
        return AdapterTensor(key, *found) if found else None

    def spell(self, tensor: AdapterTensor) -> str:
        return joined(tensor.module, word_for(tensor, LEAVES, self.name))

    def around(
        self, tensors: Iterable[AdapterTensor], keys: Iterable[str] = ()
    ) -> Mapping[str, tuple[str, ...]]:
        return {t.module: ("to_wrap",) for t in tensors}


DIALECT = Megatron()
