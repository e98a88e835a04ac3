"""Conversions that compute or cut, against ``cp`` and against torch.

    python benchmarks/arithmetic.py [--gb 2] [--rounds 3] [--folder DIR]

The checkpoint of ``rename.py``: every matrix transposed; every matrix cut in two along its second dimension,
as for two tensor-parallel ranks; fp16 to bf16; and an fp32 one to bf16.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from harness import REMAP, Limit, arguments, measure, report
from rename import made

PACK = """
remap: 1
pack: bench/{op}
version: 1.0.0
title: every matrix, {op}
stages:
  - rules:
      - {{id: in, from: "gpt_neox.embed_in.weight", to: {in}, do: {do}}}
      - {{id: out, from: "embed_out.weight", to: {out}, do: {do}}}
      - id: layers
        from: "gpt_neox.layers.{{i:int}}.{{part:attention|mlp}}.{{p}}.weight"
        to: {layers}
        do: {do}
      - {{keep: "**"}}
"""
NAMES = {"in": "{}embed_in", "out": "{}embed_out", "layers": "{}{{i}}.{{part}}.{{p}}"}
TRANSPOSE = """
import sys
from safetensors.torch import load_file, save_file
state = {k: v.t().contiguous() if v.ndim == 2 else v for k, v in load_file(sys.argv[1]).items()}
save_file(state, sys.argv[2])
"""


def packs(folder: Path) -> None:
    """``transpose.yaml`` and ``split.yaml``."""
    one = {k: f'"{n.format("t.")}"' for k, n in NAMES.items()}
    two = {k: f'["{n.format("0.")}", "{n.format("1.")}"]' for k, n in NAMES.items()}
    (folder / "transpose.yaml").write_text(PACK.format(op="transpose", do="transpose", **one))
    (folder / "split.yaml").write_text(PACK.format(op="split", do="{split: {dim: 1}}", **two))


def main() -> None:
    args = arguments(__doc__, gb=2)
    with tempfile.TemporaryDirectory(dir=args.folder) as scratch:
        folder = Path(scratch)
        made(folder, args.gb)
        packs(folder)
        source, wide, out = folder / "model.safetensors", folder / "wide.safetensors", folder / "out"
        target = str(out / source.name)

        def remap(source: Path, *how: str) -> tuple[str, ...]:
            return (str(REMAP), "convert", str(source), target, *how)

        commands = {
            "cp": ("cp", str(source), target),
            "remap, transpose": remap(source, "-r", str(folder / "transpose.yaml")),
            "remap, split on dim 1": remap(source, "-r", str(folder / "split.yaml")),
            "remap, fp16 to bf16": remap(source, "--dtype", "bf16"),
            "torch: load, transpose, save": (sys.executable, "-c", TRANSPOSE, str(source), target),
        }
        limits = {name: Limit(ratio=2) for name in commands if name.startswith("remap")}
        figures = measure(commands, out, args.rounds)
        report(f"Arithmetic, {source.stat().st_size / 1e9:.1f} GB", figures, "cp", limits=limits)
        out.mkdir()
        subprocess.run(
            (str(REMAP), "convert", source, wide, "--dtype", "f32"), check=True, capture_output=True
        )
        source.unlink()
        commands = {"cp": ("cp", str(wide), target), "remap, fp32 to bf16": remap(wide, "--dtype", "bf16")}
        figures = measure(commands, out, args.rounds)
        title = f"Arithmetic, {wide.stat().st_size / 1e9:.1f} GB"
        report(title, figures, "cp", limits={"remap, fp32 to bf16": Limit(ratio=2)})


if __name__ == "__main__":
    main()
