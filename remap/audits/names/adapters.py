"""Words in the keys of adapters: LoRA and its kin, bottleneck adapters, prefixes, prompts.

More of them than ``remap.dialects`` takes apart: a report says of an adapter that remap can't move that it is
one, too. Sources: peft ``tuners/*/model.py`` and ``tuners/*/layer.py`` (attributes ``adapter_layer_names``,
``other_param_names``); kohya-ss sd-scripts ``networks/lora.py`` (lora_down, lora_up), LyCORIS (hada, lokr,
dora_scale); MAGMA ``magma/adapters.py`` (``adapter``, with ``adapter_scale`` where it is parallel).
"""

from __future__ import annotations

import re

from remap.dialects import pairs, registry
from remap.dialects.base import AdapterTensor

_ADAPTER = re.compile(
    r"(?:^|\.)(?:"
    r"lora_(?:A|B|E|embedding_A|embedding_B|magnitude_vector|bottleneck|dropout|down|up|mid|a|b|ranknum)"
    r"|(?:randlora|vera|road|hra|oft|boft|hada|lokr|vblora|fourierft|shira|c3a|miss|bone|waveft|delora|gralora)_\w+"
    r"|ia3_l|dora_scale|ln_tuning_layers|loha_\w+|ranknum|trainable_tokens_\w+|token_adapter"
    r"|adapters?|adapter_scale|adapter_layers?|adaption_\w+|side_adapter"
    r"|prompt_embeddings|prompt_encoder|prefix_encoder|prefix_tokens|soft_prompts?|modules_to_save"
    r")(?:\.|$)"
)
"""Whole segments."""


def is_adapter(key: str) -> bool:
    """Is it a tensor of an adapter, by its name?"""
    return _ADAPTER.search(key) is not None


def kind(key: str) -> str:
    """The segment that says so: ``lora_A``, ``adapter``; empty where there is none."""
    found = _ADAPTER.search(key)
    return found[0].strip(".") if found else ""


def family(key: str) -> str:
    """What its kind belongs to: ``lora`` for lora_A and lora_up; empty for what is no adapter."""
    return kind(key).partition("_")[0].removesuffix("s")


def parts(key: str) -> tuple[str, AdapterTensor] | None:
    """The dialect of a key and its parts there; None for what no dialect knows."""
    if not _ADAPTER.search(key):
        return None
    for dialect in registry.dialects():
        tensor = dialect.parse(key)
        if tensor is not None:
            return dialect.name, tensor
    return None


def partner(key: str) -> str:
    """The other factor of a pair; empty for what has none."""
    found = parts(key)
    return pairs.partner(found[1], found[0]) if found else ""
