"""Weights that lie [in, out] beside some that lie [out, in]: PEFT says which in one word for all of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import peft
import pytest
import torch
import transformers
from adapters import bench, models
from adapters.test_merge import merge

import remap
from remap.adapters.placing.orientation import Orientation
from remap.dtypes import dtype
from remap.types import TensorSpec

HEAD_LAST = ["attn.c_proj", "lm_head"]
"""The attention's c_proj is square, and a Conv1D; the head is a linear layer, and PEFT meets it last."""
CONFIGS: Mapping[str, peft.PeftConfig] = {
    "lora": peft.LoraConfig(r=4, lora_alpha=8, target_modules=HEAD_LAST),
    "dora": peft.LoraConfig(r=4, target_modules=[*HEAD_LAST, "c_attn"], use_dora=True),
    "ia3": peft.IA3Config(target_modules=HEAD_LAST, feedforward_modules=[]),
    "adalora": peft.AdaLoraConfig(
        init_r=6, target_r=4, total_step=10, target_modules=["attn.c_proj", "c_attn"], fan_in_fan_out=True
    ),
    "vera": peft.VeraConfig(r=4, target_modules=["attn.c_proj"], save_projection=True, fan_in_fan_out=True),
}


def gpt2() -> torch.nn.Module:
    settings = transformers.GPT2Config(
        vocab_size=96, n_embd=32, n_layer=2, n_head=4, n_positions=32, tie_word_embeddings=False
    )
    return models.randomised(transformers.GPT2LMHeadModel(settings))


@pytest.mark.parametrize("method", CONFIGS)
def test_square_weights_are_known_by_what_lies_beside_them(tmp_path: Path, method: str) -> None:
    """Merged as PEFT merges; and the audit finds every size right."""
    base = models.saved(gpt2(), tmp_path / "base")
    model = bench.made(gpt2(), CONFIGS[method], tmp_path / "adapter")
    said = json.loads((tmp_path / "adapter/adapter_config.json").read_text())
    assert said["fan_in_fan_out"] is (method in ("adalora", "vera"))
    wanted = bench.quietly(model.merge_and_unload).state_dict()
    found = merge(base, tmp_path / "merged", (tmp_path / "adapter", 1.0))
    assert found.keys() == wanted.keys()
    for key, tensor in wanted.items():
        torch.testing.assert_close(found[key], tensor, rtol=1e-5, atol=1e-6)
    report = remap.audit(tmp_path / "adapter", base, policy="lora")
    assert {f.category for f in report.findings} <= {
        "matched",
        "unexpected-parameter",
    }  # the head's own weight


def test_what_tells() -> None:
    """Sizes, then the nearest biases, then the configuration."""

    def spec(*shape: int) -> TensorSpec:
        return TensorSpec(dtype("float32"), shape)

    base = {
        "h.0.a.up.weight": spec(4, 12),
        "h.0.a.up.bias": spec(12),
        "h.0.a.square.weight": spec(4, 4),
        "h.0.b.square.weight": spec(4, 4),
        "h.1.up.weight": spec(12, 4),
        "h.1.up.bias": spec(12),
        "h.1.square.weight": spec(4, 4),
        "head.weight": spec(9, 4),
    }
    lies = Orientation({}, base)
    flipped = {k for k in base if lies.flipped(k)}
    assert flipped == {"h.0.a.up.weight", "h.0.a.square.weight", "h.0.b.square.weight"}
    assert lies.flipped("head.weight", outputs=4)
    assert not lies.flipped("head.weight", outputs=9)
    assert Orientation({"fan_in_fan_out": True}, base).flipped("head.weight")
    assert Orientation({"fan_in_fan_out": True}).flipped("anything")
