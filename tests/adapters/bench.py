"""Adapters that PEFT makes of small models, migrated, merged, and judged by PEFT again."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path

import peft
import torch
from torch import nn

import remap
from remap.adapters import read
from remap.adapters.migrating.follow import migrated
from remap.adapters.write import write_adapter
from remap.output import How
from remap.packs import Pack
from remap.packs import read as read_pack

ALL = ["query_key_value", "dense", "dense_h_to_4h", "dense_4h_to_h"]
METHODS: Mapping[str, peft.PeftConfig] = {
    "lora": peft.LoraConfig(r=4, lora_alpha=8, target_modules=["query_key_value"]),
    "lora-all": peft.LoraConfig(r=4, lora_alpha=8, target_modules=ALL),
    "rslora": peft.LoraConfig(r=4, lora_alpha=8, target_modules=ALL, use_rslora=True),
    "dora": peft.LoraConfig(r=4, lora_alpha=8, target_modules=ALL, use_dora=True),
    "bias-lora-only": peft.LoraConfig(r=4, target_modules=["query_key_value"], bias="lora_only"),
    "bias-all": peft.LoraConfig(r=4, target_modules=["query_key_value"], bias="all"),
    "bias-of-b": peft.LoraConfig(r=4, target_modules=ALL, lora_bias=True),
    "patterns": peft.LoraConfig(
        r=4,
        lora_alpha=8,
        target_modules=ALL,
        rank_pattern={"layers.1.attention.query_key_value": 6, "dense": 2},
        alpha_pattern={"mlp.dense_h_to_4h": 3},
    ),
    "one-layer": peft.LoraConfig(r=4, target_modules=["query_key_value"], layers_to_transform=[1]),
    "regex": peft.LoraConfig(r=4, target_modules=r".*layers\.0\.attention\.(query_key_value|dense)"),
    "saved": peft.LoraConfig(
        r=4, target_modules=["query_key_value"], modules_to_save=["embed_in", "lm_head"]
    ),
    "saved-by-its-end": peft.LoraConfig(r=4, target_modules=["query_key_value"], modules_to_save=["head"]),
    "embedding": peft.LoraConfig(r=4, target_modules=["query_key_value", "embed_in"]),
    "dora-embedding": peft.LoraConfig(r=4, target_modules=["dense", "embed_in"], use_dora=True),
    "tokens": peft.LoraConfig(
        r=4, target_modules=["query_key_value"], trainable_token_indices={"embed_in": [2, 5, 7]}
    ),
    "ia3": peft.IA3Config(
        target_modules=["query_key_value", "dense_4h_to_h"], feedforward_modules=["dense_4h_to_h"]
    ),
    "layer-norms": peft.LNTuningConfig(target_modules=["input_layernorm"]),
    "adalora": peft.AdaLoraConfig(init_r=6, target_r=4, total_step=10, target_modules=["query_key_value"]),
    "loha": peft.LoHaConfig(r=4, alpha=8, target_modules=["query_key_value"]),
    "lokr": peft.LoKrConfig(r=4, alpha=8, target_modules=["query_key_value"]),
    "lokr-patterns": peft.LoKrConfig(
        r=4,
        alpha=8,
        target_modules=["query_key_value", "dense"],
        rank_pattern={"layers.1.attention.query_key_value": 2},
        alpha_pattern={"0.attention.dense": 3, "layers.1.attention.dense": 5},
    ),
    "vera": peft.VeraConfig(r=4, target_modules=["query_key_value"], save_projection=True),
    "oft": peft.OFTConfig(oft_block_size=8, target_modules=["query_key_value"], bias="none"),
    "boft": peft.BOFTConfig(boft_block_size=4, target_modules=["query_key_value"], bias="none"),
    "prompt": peft.PromptTuningConfig(num_virtual_tokens=3, task_type="CAUSAL_LM"),
    "prefix": peft.PrefixTuningConfig(num_virtual_tokens=3, task_type="CAUSAL_LM"),
}
"""One of each method, for GPT-NeoX."""


def made(base: nn.Module, config: peft.PeftConfig, folder: Path, seed: int = 1) -> nn.Module:
    """The base with an adapter that changes everything that it may, saved into a folder."""
    from copy import deepcopy

    model = quietly(lambda: peft.get_peft_model(deepcopy(base), deepcopy(config)))
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in (p for p in model.parameters() if p.requires_grad):
            parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.2)
    quietly(lambda: model.save_pretrained(folder))
    return model.eval()


def on(base: nn.Module, folder: Path) -> nn.Module:
    """The base with the adapter in a folder. What PEFT only warns of, keys without a place, is an error."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.filterwarnings("error", message=".*(missing|unexpected|not found).*")
        return peft.PeftModel.from_pretrained(base, folder).eval()


def quietly(work):  # type: ignore[no-untyped-def]
    """PEFT's remarks about tiny models are nobody's business."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return work()


def pack(text: str) -> Pack:
    return read_pack(text.encode(), "test.yaml")


def migrate(
    folder: Path, output: Path, packs: list[Pack], base: Path | None = None, **options: object
) -> dict[str, object]:
    """Migrate an adapter; its new configuration."""
    found = migrated(read(folder), packs, base=remap.open(base).catalog if base else None, **options)  # type: ignore[arg-type]
    write_adapter(found.plan, output, found.config, How())
    return found.config
