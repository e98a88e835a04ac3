"""Small conversions that write every format, to be killed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file
from trust.killing.faults import command

SIZES = {
    "attention.query_key_value": (24, 8),
    "attention.dense": (8, 8),
    "mlp.dense_h_to_4h": (32, 8),
    "mlp.dense_4h_to_h": (8, 32),
}


def neox() -> dict[str, tuple[int, ...]]:
    """A GPT-NeoX of two layers."""
    shapes: dict[str, tuple[int, ...]] = {"gpt_neox.embed_in.weight": (16, 8), "embed_out.weight": (16, 8)}
    for layer in range(2):
        prefix = f"gpt_neox.layers.{layer}"
        shapes |= {f"{prefix}.{name}.weight": size for name, size in SIZES.items()}
        shapes |= {f"{prefix}.{name}.bias": size[:1] for name, size in SIZES.items()}
        shapes |= {f"{prefix}.{n}.{k}": (8,) for n in NORMS for k in ("weight", "bias")}
    shapes |= {f"gpt_neox.final_layer_norm.{k}": (8,) for k in ("weight", "bias")}
    return shapes


def opt() -> dict[str, tuple[int, ...]]:
    """An OPT of one layer."""
    prefix = "model.decoder"
    shapes: dict[str, tuple[int, ...]] = {
        f"{prefix}.embed_tokens.weight": (16, 8),
        f"{prefix}.embed_positions.weight": (12, 8),
    }
    for name in ("k_proj", "q_proj", "v_proj", "out_proj"):
        shapes[f"{prefix}.layers.0.self_attn.{name}.weight"] = (8, 8)
        shapes[f"{prefix}.layers.0.self_attn.{name}.bias"] = (8,)
    for name, size in {"fc1": (32, 8), "fc2": (8, 32)}.items():
        shapes |= {f"{prefix}.layers.0.{name}.weight": size, f"{prefix}.layers.0.{name}.bias": size[:1]}
    norms = ("layers.0.self_attn_layer_norm", "layers.0.final_layer_norm", "final_layer_norm")
    return shapes | {f"{prefix}.{n}.{k}": (8,) for n in norms for k in ("weight", "bias")}


def source(folder: Path, shapes: dict[str, tuple[int, ...]], **config: object) -> Path:
    """A Hugging Face folder with random weights, in fp16."""
    random = np.random.default_rng(0)
    folder.mkdir()
    tensors = {k: random.standard_normal(s).astype("float16") for k, s in shapes.items()}
    save_file(tensors, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def sources(folder: Path) -> dict[str, Path]:
    """Name of a model -> its folder."""
    heads = {"num_attention_heads": 2, "hidden_size": 8}
    return {
        "neox": source(folder / "neox", neox(), model_type="gpt_neox", num_hidden_layers=2, **heads),
        "opt": source(folder / "opt", opt(), model_type="opt", num_hidden_layers=1, **heads),
    }


NORMS = ("input_layernorm", "post_attention_layernorm")


@dataclass(frozen=True)
class Conversion:
    """``remap`` with ``before`` SOURCE DESTINATION ``after``; the source is converted to ``source`` first.

    old  what lies at the destination before: None for nothing, else the arguments that write it
    """

    name: str
    destination: str
    after: tuple[str, ...] = ()
    before: str = "convert"
    source: tuple[str, ...] = ()
    model: str = "neox"
    old: tuple[str, ...] | None = None

    def command(self, source: Path, destination: Path) -> list[object]:
        """The arguments."""
        return [self.before, source, destination, *self.after, "--jobs", "1"]

    def prepare(self, folder: Path, plain: Path) -> Path:
        """The source, in its format."""
        if not self.source:
            return plain
        made = folder / "source"
        assert command(["convert", plain, made, *self.source]) == 0
        return made

    def prepare_old(self, source: Path, destination: Path) -> None:
        """What lies at the destination before."""
        if self.old is not None:
            assert command(["convert", source, destination, *self.old]) == 0


NEOX = ("-r", "gpt_neox/hf-to-neox", "-p", "gpt_j_residual=false")

CONVERSIONS: Sequence[Conversion] = (
    Conversion("safetensors, one file", "out.safetensors", ("--sync",)),
    Conversion(
        "safetensors, one file replaced", "out.safetensors", ("--dtype", "bf16", "--overwrite"), old=()
    ),
    Conversion("safetensors, shards", "out", ("--shard-size", "1KB", "--sync")),
    Conversion("safetensors, folder replaced", "out", ("--dtype", "f32", "--overwrite", "--sync"), old=()),
    Conversion("torch, one file", "out.pt", ("--sync",)),
    Conversion("torch, shards", "out", ("--to", "torch", "--shard-size", "1KB")),
    Conversion("torch, renamed", "out.pt", ("--dtype", "f32"), source=("--to", "torch")),
    Conversion("deepspeed-pipeline", "out", ("-r", "magma/from-hf", "--to", "deepspeed-pipeline", "--sync")),
    Conversion("deepspeed, two ranks", "out", (*NEOX, "--to", "deepspeed", "--tp", "2")),
    Conversion("megatron, two ranks", "out", (*NEOX, "--to", "megatron", "--tp", "2")),
    Conversion("dcp", "out", ("--to", "dcp", "--ranks", "2", "--sync")),
    Conversion("metaseq", "out", ("-r", "opt/hf-to-metaseq", "--to", "metaseq"), model="opt"),
    Conversion(
        "metaseq, shards",
        "out",
        ("--fsdp", "2"),
        "reshard",
        ("-r", "opt/hf-to-metaseq", "--to", "metaseq"),
        model="opt",
    ),
    Conversion("dcp, cut anew", "out", ("--fsdp", "3"), "reshard", ("--to", "dcp", "--ranks", "2")),
)
