"""Query, key and value, split by remap: the rows that transformers' own attention takes from one tensor."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from remap import api

HEADS, HIDDEN = 12, 48


@pytest.mark.parametrize(
    ("kv", "settings"),
    [
        (3, {"new_decoder_architecture": True, "num_kv_heads": 3}),
        (1, {"new_decoder_architecture": False, "multi_query": True}),
        (HEADS, {"new_decoder_architecture": False, "multi_query": False}),
    ],
)
def test_falcon(tmp_path: Path, kv: int, settings: dict[str, Any]) -> None:
    transformers = pytest.importorskip("transformers")
    from transformers.models.falcon.modeling_falcon import FalconAttention

    config = transformers.FalconConfig(hidden_size=HIDDEN, num_attention_heads=HEADS, **settings)
    attention = FalconAttention(config, layer_idx=0)
    fused = torch.arange(attention.query_key_value.weight.shape[0], dtype=torch.float32)
    wanted = attention._split_heads(fused[None, None])
    params = {"heads": str(HEADS), "kv_heads": str(kv), "new": str(settings["new_decoder_architecture"])}
    params["multi_query"] = str(config.multi_query)
    found = split(tmp_path, "falcon/split-qkv", fused, params)
    for name, rows in zip("qkv", wanted, strict=True):
        heads = rows.reshape(-1, HIDDEN // HEADS)
        if name != "q" and len(heads) != kv:  # the new architecture repeats each key and value
            heads = heads[:: HEADS // kv]
        assert torch.equal(found[name], heads.flatten()), name


def test_bloom(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    from transformers.models.bloom.modeling_bloom import BloomAttention

    attention = BloomAttention(transformers.BloomConfig(hidden_size=HIDDEN, n_head=HEADS), layer_idx=0)
    fused = torch.arange(3 * HIDDEN, dtype=torch.float32)
    found = split(tmp_path, "bloom/split-qkv", fused, {"heads": str(HEADS)})
    for name, rows in zip("qkv", attention._reshape(fused[None, None]), strict=True):
        assert torch.equal(found[name], rows.flatten()), name


def split(folder: Path, pack: str, fused: torch.Tensor, params: dict[str, str]) -> dict[str, torch.Tensor]:
    at = "transformer.h.0.self_attention"
    given = {f"{at}.query_key_value.bias": fused, "transformer.ln_f.bias": torch.ones(4)}
    save_file(given, folder / "a.safetensors")
    api.convert(folder / "a.safetensors", folder / "b.safetensors", [pack], params=params)
    made = load_file(folder / "b.safetensors")
    return {n: made[f"{at}.{n}_proj.bias"] for n in "qkv"}
