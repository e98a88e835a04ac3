"""MLX: LoRA's factors, both transposed.

    model.layers.0.self_attn.q_proj.lora_a    [in, r]
    model.layers.0.self_attn.q_proj.lora_b    [r, out]

Where rank and size agree, a loader can't see it. Source: mlx-lm ``tuner/lora.py`` (``LoRALinear``:
``x @ lora_a @ lora_b``).
"""

from __future__ import annotations

from dataclasses import dataclass

from remap.dialects.base import AdapterTensor
from remap.dialects.plain import joined, leaf_of, word_for
from remap.expr import Expr, Permute

LEAVES = {"lora_a": "lora_A.weight", "lora_b": "lora_B.weight"}


@dataclass(frozen=True)
class Mlx:
    """The ``mlx`` dialect: see the module's docstring."""

    name = "mlx"
    title = "MLX's lora_a and lora_b"
    method = "lora"

    def parse(self, key: str) -> AdapterTensor | None:
        found = leaf_of(key, LEAVES)
        return AdapterTensor(key, *found) if found else None

    def spell(self, tensor: AdapterTensor) -> str:
        return joined(tensor.module, word_for(tensor, LEAVES, self.name))

    def to_peft(self, leaf: str, value: Expr) -> Expr:
        return Permute(value, (1, 0))

    from_peft = to_peft


DIALECT = Mlx()
