"""The same checkpoint by other tools: transformers, mergekit, brainsurgery.

    python benchmarks/others.py [--gb 1] [--rounds 2] [--folder DIR]

A LLaMA. transformers loads and saves it, with its own conversion of names; mergekit copies it
(``passthrough``); remap renames every key. A tool that is not there is in the table with the reason.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from math import prod
from pathlib import Path

from harness import REMAP, arguments, measure, report

HIDDEN, INNER, VOCABULARY = 2048, 5632, 32000
TRANSFORMERS = """
import sys, torch
from transformers import AutoModelForCausalLM
model = AutoModelForCausalLM.from_pretrained(sys.argv[1], dtype=torch.float16)
model.save_pretrained(sys.argv[2])
"""
MERGEKIT = """
slices:
  - sources:
      - {{model: {source}, layer_range: [0, {layers}]}}
merge_method: passthrough
dtype: float16
"""
PACK = """
remap: 1
pack: bench/wrap
version: 1.0.0
title: every key behind a prefix
stages:
  - rules:
      - {id: all, from: "{rest:path}", to: "wrapped.{rest}"}
"""


def write(folder: Path, gigabytes: float) -> int:
    """``model.safetensors`` and ``config.json`` of a LLaMA, fp16; the number of its layers."""
    shapes = {f"{k}_proj.weight": (HIDDEN, HIDDEN) for k in ("self_attn.q", "self_attn.k", "self_attn.v")}
    shapes |= {"self_attn.o_proj.weight": (HIDDEN, HIDDEN), "mlp.down_proj.weight": (HIDDEN, INNER)}
    shapes |= {f"mlp.{k}_proj.weight": (INNER, HIDDEN) for k in ("gate", "up")}
    norms = ("input_layernorm.weight", "post_attention_layernorm.weight")
    layers = max(1, round(gigabytes * 1e9 / sum(2 * prod(s) for s in shapes.values())))
    keys: dict[str, tuple[int, ...]] = {
        f"model.{k}": s
        for k, s in (("embed_tokens.weight", (VOCABULARY, HIDDEN)), ("norm.weight", (HIDDEN,)))
    }
    for i in range(layers):
        keys |= {f"model.layers.{i}.{k}": s for k, s in shapes.items()}
        keys |= {f"model.layers.{i}.{k}": (HIDDEN,) for k in norms}
    keys["lm_head.weight"] = (VOCABULARY, HIDDEN)
    header, offset = {}, 0
    for key, shape in keys.items():
        header[key] = {"dtype": "F16", "shape": shape, "data_offsets": [offset, offset + 2 * prod(shape)]}
        offset += 2 * prod(shape)
    text = json.dumps({"__metadata__": {"format": "pt"}, **header}).encode()
    noise = os.urandom(1 << 20)
    with (folder / "model.safetensors").open("wb") as f:
        f.write(len(text).to_bytes(8, "little") + text)
        for start in range(0, offset, len(noise)):
            f.write(noise[: offset - start])
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": HIDDEN,
        "intermediate_size": INNER,
        "num_attention_heads": 16,
        "num_hidden_layers": layers,
        "vocab_size": VOCABULARY,
        "tie_word_embeddings": False,
    }
    (folder / "config.json").write_text(json.dumps(config))
    return layers


def main() -> None:
    args = arguments(__doc__, gb=1, rounds=2)
    with tempfile.TemporaryDirectory(dir=args.folder) as scratch:
        source, out, pack = (Path(scratch) / name for name in ("in", "out", "pack.yaml"))
        source.mkdir()
        layers = write(source, args.gb)
        pack.write_text(PACK)
        target = str(out / "made")
        commands = {
            "cp": ("cp", "-r", str(source), target),
            "remap": (str(REMAP), "convert", str(source), target, "-r", str(pack)),
            "transformers, load and save": (sys.executable, "-c", TRANSFORMERS, str(source), target),
        }
        absent = {}
        if importlib.util.find_spec("mergekit"):
            plan = Path(scratch) / "mergekit.yaml"
            plan.write_text(MERGEKIT.format(source=source, layers=layers))
            tool = Path(sys.executable).with_name("mergekit-yaml")
            commands["mergekit, passthrough"] = (
                str(tool),
                str(plan),
                target,
                "--no-copy-tokenizer",
                "--no-write-model-card",
            )
        else:
            absent["mergekit, passthrough"] = "not installed (pip install '.[bench]')"
        absent["brainsurgery"] = brainsurgery()
        size = (source / "model.safetensors").stat().st_size / 1e9
        report(f"Other tools, {size:.1f} GB", measure(commands, out, args.rounds), "cp", absent=absent)


def brainsurgery() -> str:
    """Why it is not measured."""
    if sys.version_info < (3, 13):
        return f"version 0.2.12 needs Python 3.13, this is {sys.version_info[0]}.{sys.version_info[1]}"
    known = subprocess.run((sys.executable, "-m", "pip", "show", "brainsurgery"), capture_output=True)
    return "not installed" if known.returncode else "loads whole files, as the scripts of rename.py do"


if __name__ == "__main__":
    main()
