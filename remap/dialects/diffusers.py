"""diffusers' own words for LoRA, from before it used PEFT, and older still.

    unet.down_blocks.0.attentions.0.transformer_blocks.0.attn1.to_k.lora.down.weight
    text_encoder.text_model.encoder.layers.0.self_attn.q_proj.lora_linear_layer.up.weight
    unet.down_blocks.0.attentions.0.transformer_blocks.0.attn1.processor.to_out_lora.up.weight     read only

What diffusers writes today has PEFT's words. Its loader takes the rank for alpha. Source: diffusers
``utils/state_dict_utils.py`` (``DIFFUSERS_TO_PEFT``, ``UNET_TO_DIFFUSERS``, ``DIFFUSERS_OLD_TO_PEFT``).
"""

from __future__ import annotations

from dataclasses import dataclass

from remap.dialects.base import AdapterTensor
from remap.dialects.modules import COMPONENTS
from remap.dialects.plain import joined, leaf_of, word_for

UNET = {
    "lora.down.weight": "lora_A.weight",
    "lora.up.weight": "lora_B.weight",
    "lora_magnitude_vector": "lora_magnitude_vector",
}
TEXT = {
    "lora_linear_layer.down.weight": "lora_A.weight",
    "lora_linear_layer.up.weight": "lora_B.weight",
    "lora_magnitude_vector": "lora_magnitude_vector",
}
_OLD = {"down.weight": "lora_A.weight", "up.weight": "lora_B.weight"}
_OLD_UNET = {"to_q_lora": "to_q", "to_k_lora": "to_k", "to_v_lora": "to_v", "to_out_lora": "to_out.0"} | {
    f"add_{n}_proj_lora": f"add_{n}_proj" for n in "qkv"
}
_OLD_TEXT = {
    "to_q_lora": "q_proj",
    "to_k_lora": "k_proj",
    "to_v_lora": "v_proj",
    "to_out_lora": "out_proj",
}


@dataclass(frozen=True)
class Diffusers:
    """The ``diffusers`` dialect: see the module's docstring."""

    name = "diffusers"
    title = "diffusers' LoRA files"
    method = "lora"

    def parse(self, key: str) -> AdapterTensor | None:
        found = leaf_of(key, UNET | TEXT) or _old(key)
        if found is None:
            return None
        path, leaf = found
        first, _, rest = path.partition(".")
        if first in COMPONENTS and rest:
            return AdapterTensor(key, rest, leaf, wrapper=first)
        return AdapterTensor(key, path, leaf)

    def spell(self, tensor: AdapterTensor) -> str:
        leaves = TEXT if tensor.wrapper.startswith("text_encoder") else UNET
        return joined(tensor.wrapper, tensor.module, word_for(tensor, leaves, self.name))


DIALECT = Diffusers()


def _old(key: str) -> tuple[str, str] | None:
    """``....attn1.processor.to_k_lora.down.weight``; the text encoder's have no ``processor``."""
    *path, word, down, weight = ["", "", "", *key.split(".")]
    leaf = _OLD.get(f"{down}.{weight}")
    processor = path[-1] == "processor"
    module = (_OLD_UNET if processor else _OLD_TEXT).get(word)
    if leaf is None or module is None:
        return None
    return ".".join([*(p for p in (path[:-1] if processor else path) if p), module]), leaf
