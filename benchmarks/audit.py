"""An audit of many keys against a key list: the whole process, as CI runs it.

    python benchmarks/audit.py [--rounds 5] [KEYS...]

Without key lists, one is made: 61 layers with 256 experts each, 45,395 keys named and shaped as
DeepSeek-V3's are. Four audits are timed: the list against itself; with a pack that renames every key; with
one layer's weights misnamed; and with every key behind a prefix, so that all changes that could explain it
are tried.
"""

from __future__ import annotations

import argparse
import gzip
import json
import tempfile
from pathlib import Path

from harness import REMAP, measure, report

PACK = """
remap: 1
pack: bench/rename
version: 1.0.0
title: every key another name
stages:
  - rules:
      - {id: all, from: "model.{rest:path}", to: "net.{rest}"}
      - {id: head, keep: lm_head.weight}
"""


def deepseek() -> dict[str, tuple[list[int], str]]:
    """The keys of DeepSeek-V3 in transformers 4.57: ``modeling_deepseek_v3.py``, without fp8 scales."""
    h, inner, first = 7168, 2048, 18432
    attention = {
        "q_a_proj": [1536, h],
        "q_b_proj": [24576, 1536],
        "kv_a_proj_with_mqa": [576, h],
        "kv_b_proj": [32768, 512],
        "o_proj": [h, 16384],
    }
    shapes: dict[str, list[int]] = {"model.embed_tokens.weight": [129280, h]}
    for i in range(61):
        layer = f"model.layers.{i}"
        shapes |= {f"{layer}.self_attn.{k}.weight": s for k, s in attention.items()}
        shapes |= {f"{layer}.self_attn.{k}_layernorm.weight": [n] for k, n in (("q_a", 1536), ("kv_a", 512))}
        shapes |= {f"{layer}.{k}_layernorm.weight": [h] for k in ("input", "post_attention")}
        experts = [("mlp", first)] if i < 3 else [(f"mlp.experts.{e}", inner) for e in range(256)]
        if i >= 3:
            experts.append(("mlp.shared_experts", inner))
            shapes |= {
                f"{layer}.mlp.gate.weight": [256, h],
                f"{layer}.mlp.gate.e_score_correction_bias": [256],
            }
        for name, size in experts:
            shapes |= {f"{layer}.{name}.{k}_proj.weight": [size, h] for k in ("gate", "up")}
            shapes[f"{layer}.{name}.down_proj.weight"] = [h, size]
    shapes |= {"model.norm.weight": [h], "lm_head.weight": [129280, h]}
    return {k: (s, "bfloat16") for k, s in shapes.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "lists", type=Path, nargs="*", metavar="KEYS", help="key lists, instead of the one that is made"
    )
    args = parser.parse_args()
    made = {"DeepSeek-V3": deepseek()}
    lists = {p.name: json.loads(gzip.decompress(p.read_bytes())) for p in args.lists} or made
    for name, keys in lists.items():
        with tempfile.TemporaryDirectory() as scratch:
            report(
                f"{name}, {len(keys):,} keys",
                measure(commands(keys, Path(scratch)), Path(scratch) / "out", args.rounds),
                "matching",
            )


def commands(keys: dict[str, object], folder: Path) -> dict[str, tuple[str, ...]]:
    """Name -> command. An audit that fails is no failure of the benchmark."""
    variants = {
        "source": keys,
        "target": keys,
        "renamed": {k.replace("model.", "net.", 1): v for k, v in keys.items()},
        "misnamed": {k.replace("layers.3.self_attn", "layers.3.attn"): v for k, v in keys.items()},
        "prefixed": {f"wrapper.{k}": v for k, v in keys.items()},
    }
    files = {n: folder / f"{n}.json" for n in variants}
    for name, variant in variants.items():
        files[name].write_text(json.dumps(variant))
    pack = folder / "pack.yaml"
    pack.write_text(PACK)

    def audit(source: str, target: str, *more: str) -> tuple[str, ...]:
        command = " ".join([str(REMAP), "audit", str(files[source]), "--against", str(files[target]), *more])
        return "sh", "-c", f"{command}; test $? -le 1"

    return {
        "matching": audit("source", "target"),
        "renamed by a pack": audit("source", "renamed", "-r", str(pack)),
        "one layer misnamed": audit("misnamed", "target"),
        "every key behind a prefix": audit("prefixed", "target"),
    }


if __name__ == "__main__":
    main()
