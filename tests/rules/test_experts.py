"""Per-expert checkpoints of transformers 4, judged by transformers 5: it merges experts when it loads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from remap import api

COMMON: dict[str, Any] = {
    "vocab_size": 64,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "tie_word_embeddings": False,
}


@pytest.mark.parametrize(
    ("family", "name", "more"),
    [
        ("mixtral", "Mixtral", {"num_local_experts": 12}),
        ("qwen2moe", "Qwen2Moe", {"num_experts": 12, "moe_intermediate_size": 8}),
    ],
)
def test_experts_split_by_remap_are_merged_alike_by_transformers(
    tmp_path: Path, family: str, name: str, more: dict[str, Any]
) -> None:
    transformers = pytest.importorskip("transformers", minversion="5")
    torch.manual_seed(0)
    config = getattr(transformers, f"{name}Config")(**COMMON, **more)
    kind = getattr(transformers, f"{name}ForCausalLM")
    model = kind(config).eval()
    pack = [f"transformers/{family}-4-to-5"]
    (tmp_path / "five").mkdir()
    torch.save(model.state_dict(), tmp_path / "five" / "pytorch_model.bin")
    four = tmp_path / "four"
    four.mkdir()
    api.convert(tmp_path / "five" / "pytorch_model.bin", four / "model.safetensors", pack, inverse=True)
    assert any(".experts.11." in key for key in load_file(four / "model.safetensors"))

    config.save_pretrained(four)
    loaded = kind.from_pretrained(four).state_dict()
    assert all(torch.equal(loaded[k], v) for k, v in model.state_dict().items())

    api.convert(four / "model.safetensors", tmp_path / "again.safetensors", pack)
    again = load_file(tmp_path / "again.safetensors")
    assert again.keys() == model.state_dict().keys()
    assert all(torch.equal(again[k], v) for k, v in model.state_dict().items())
