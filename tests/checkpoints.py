"""Real, tiny Pythia checkpoints: a GPTNeoXForCausalLM of transformers, saved by transformers.

Weights depend only on the parameter's name, so each variant holds the same model in another file.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from safetensors.torch import load_file
from transformers import GPTNeoXConfig, GPTNeoXForCausalLM

POSITIONS = 128


def make_model(layers: int = 4, *, tied: bool = False) -> GPTNeoXForCausalLM:
    """Hidden 64, 4 heads, vocabulary 512, in fp32."""
    config = GPTNeoXConfig(
        vocab_size=512,
        hidden_size=64,
        num_hidden_layers=layers,
        num_attention_heads=4,
        intermediate_size=256,
        rotary_pct=0.25,
        max_position_embeddings=POSITIONS,
        tie_word_embeddings=tied,
        bos_token_id=0,
        eos_token_id=0,
    )
    model = GPTNeoXForCausalLM(config).eval()
    with torch.no_grad():
        for name, value in model.named_parameters():
            generator = torch.Generator().manual_seed(zlib.crc32(name.encode()))
            value.copy_(torch.randn(value.shape, generator=generator) * 0.05)
            if "norm.weight" in name:
                value.add_(1.0)
    return model


def read_tensors(folder: Path) -> dict[str, torch.Tensor]:
    """Every tensor of a checkpoint in one folder, by its library's own loader."""
    tensors: dict[str, torch.Tensor] = {}
    for file in sorted(folder.glob("*.safetensors")):
        tensors |= load_file(file)
    for file in sorted(folder.glob("*.bin")):
        tensors |= torch.load(file, weights_only=True)
    return tensors


def _save(
    layers: int, dtype: torch.dtype, *, tied: bool = False, shard: str = "1GB"
) -> Callable[[Path], None]:
    def save(folder: Path) -> None:
        make_model(layers, tied=tied).to(dtype).save_pretrained(folder, max_shard_size=shard)

    return save


def _save_bin(folder: Path, *, buffers: bool = False) -> None:
    """As transformers wrote until version 5: a ``pytorch_model.bin``, here in fp16."""
    model = make_model().half()
    model.config.save_pretrained(folder)
    tensors = {k.replace("lm_head.", "embed_out."): v for k, v in model.state_dict().items()}
    if buffers:
        tensors |= _old_buffers()
    torch.save(tensors, folder / "pytorch_model.bin")


def _old_buffers(layers: int = 4, rotary: int = 4) -> dict[str, torch.Tensor]:
    """What transformers <= 4.30 saved beside the weights of each attention."""
    causal = torch.ones(POSITIONS, POSITIONS, dtype=torch.uint8).tril().view(1, 1, POSITIONS, POSITIONS)
    inv_freq = 1.0 / (10000 ** (torch.arange(0, rotary, 2).float() / rotary))
    buffers = {}
    for layer in range(layers):
        prefix = f"gpt_neox.layers.{layer}.attention."
        buffers[prefix + "bias"] = causal.clone()
        buffers[prefix + "masked_bias"] = torch.tensor(-1e9).half()
        buffers[prefix + "rotary_emb.inv_freq"] = inv_freq.half()
    return buffers


VARIANTS: Mapping[str, Callable[[Path], None]] = {
    "fp32": _save(4, torch.float32),
    "fp16": _save(4, torch.float16),
    "bf16-sharded": _save(4, torch.bfloat16, shard="100KB"),
    "bin-fp16": _save_bin,
    "bin-fp16-buffers": lambda folder: _save_bin(folder, buffers=True),
    "tied-bf16": _save(4, torch.bfloat16, tied=True),
    "tied-fp32": _save(4, torch.float32, tied=True),
    "12-layers": _save(12, torch.float32),
    "12-layers-bf16": _save(12, torch.bfloat16),
}
"""Name -> what writes it into an empty folder."""
