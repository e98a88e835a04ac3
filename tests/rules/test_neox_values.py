"""GPT-NeoX in plain torch gives the logits of transformers, with what remap made of its weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from judges.neox_model import HEADS, HIDDEN, KV_HEADS, WORDS, Shape, Whole, batch
from safetensors.torch import load_file

import remap

transformers = pytest.importorskip("transformers", minversion="5")

SIZES: dict[str, Any] = {
    "vocab_size": WORDS,
    "hidden_size": HIDDEN,
    "intermediate_size": 4 * HIDDEN,
    "num_hidden_layers": 2,
    "num_attention_heads": HEADS,
    "tie_word_embeddings": False,
}
NEOX = {"rotary_pct": 1.0, "hidden_act": "gelu", "layer_norm_eps": 1e-5}
CASES = {
    "parallel": ("GPTNeoX", {**NEOX, "use_parallel_residual": True}, Shape(layers=2)),
    "sequential": ("GPTNeoX", {**NEOX, "use_parallel_residual": False}, Shape(layers=2, parallel=False)),
    "llama": (
        "Llama",
        {"num_key_value_heads": KV_HEADS, "rms_norm_eps": 1e-6},
        Shape("llama", layers=2, parallel=False),
    ),
}


@pytest.fixture(params=list(CASES))
def case(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Any, Path, Shape]:
    """A model of transformers, its folder, and the GPT-NeoX that it is to become."""
    kind, more, shape = CASES[request.param]
    torch.manual_seed(0)
    config = getattr(transformers, f"{kind}Config")(**SIZES, **more)
    model = getattr(transformers, f"{kind}ForCausalLM")(config).eval()
    for name, value in model.named_parameters():  # biases and norms begin at 0 and 1, and would tell nothing
        value.data += torch.randn(value.shape) * (0.02 if "weight" in name and value.dim() > 1 else 0.2)
    model.save_pretrained(tmp_path / "hf")
    return model, tmp_path / "hf", shape


@pytest.mark.parametrize("tp", [1, 2])
def test_logits_are_those_of_transformers(case: tuple[Any, Path, Shape], tmp_path: Path, tp: int) -> None:
    model, folder, shape = case
    llama = shape.flavour == "llama"
    pack = "gpt_neox/llama-to-neox" if llama else "gpt_neox/hf-to-neox"
    params = {"gqa": "blocks"} if llama else {"inv_freq": "present", "rotary_percent": "100"}
    params |= {"make_vocab_size_divisible_by": "8"}
    remap.convert(folder, tmp_path / "runs", pack, to="deepspeed-pipeline", tp=tp, params=params)
    neox = Whole(shape)
    merged = remap.open(tmp_path / "runs").state_dict()
    ours = {f"sequential.{k}": v for k, v in merged.items()}
    for name in ("0.word_embeddings.weight", f"{shape.layers + 4}.final_linear.weight"):
        rows = ours[f"sequential.{name}"]
        ours[f"sequential.{name}"] = torch.cat([rows, rows.new_zeros(shape.rows - len(rows), HIDDEN)])
    neox.load_state_dict(ours, strict=True)  # code before 2024-03: with inv_freq
    tokens, _ = batch()
    with torch.no_grad():
        found, wanted = neox(tokens)[..., :WORDS], model(tokens).logits
    assert torch.allclose(found, wanted, atol=1e-5)


def test_the_way_back_is_bit_for_bit(case: tuple[Any, Path, Shape], tmp_path: Path) -> None:
    _, folder, shape = case
    llama = shape.flavour == "llama"
    pack = "gpt_neox/llama-to-neox" if llama else "gpt_neox/hf-to-neox"
    params = {"gqa": "blocks"} if llama else {}
    remap.convert(folder, tmp_path / "runs", pack, to="deepspeed-pipeline", tp=2, params=params)
    remap.convert(tmp_path / "runs", tmp_path / "back", pack, inverse=True, to="safetensors", params=params)
    before, after = (load_file(f / "model.safetensors") for f in (folder, tmp_path / "back"))
    assert before.keys() == after.keys()
    assert all(torch.equal(after[k], v) for k, v in before.items())
