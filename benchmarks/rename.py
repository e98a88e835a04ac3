"""A pure rename against ``cp`` and against the scripts that people write.

    python benchmarks/rename.py [--gb 2 8] [--rounds 3] [--folder DIR]

For each size a Pythia-shaped checkpoint is made, as safetensors and as a torch file; it is renamed for
MAGMA by remap, by ``torch.load`` + rename + ``torch.save``, and by safetensors' ``load_file`` +
``save_file``, and copied by ``cp``. All of them leave it to the system to write their data out, but for
the rows that say so (``remap convert --sync``, ``cp`` and ``sync``).
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from harness import REMAP, Limit, measure, report

LIMITS = {"remap": Limit(ratio=1.1, megabytes=100)}
HIDDEN = 2048
"""The width of the models that are made."""

RENAME = """
import sys, re
def rename(k):
    k = re.sub(r"^gpt_neox\\.layers\\.(\\d+)\\.", lambda m: f"{int(m[1]) + 2}.", k)
    k = k.replace(".attention.", ".attention.attn_block.").replace(".mlp.", ".mlp.attn_block.")
    return k
"""
TORCH = (
    RENAME
    + """
import torch
state = torch.load(sys.argv[1], weights_only=True)
torch.save({rename(k): v for k, v in state.items()}, sys.argv[2])
"""
)
SAFETENSORS = (
    RENAME
    + """
from safetensors.torch import load_file, save_file
save_file({rename(k): v for k, v in load_file(sys.argv[1]).items()}, sys.argv[2], metadata={"format": "pt"})
"""
)


def shapes(hidden: int, layers: int, vocabulary: int = 50304) -> dict[str, tuple[int, ...]]:
    """The keys of a Pythia."""
    matrices = {
        "attention.query_key_value": (3 * hidden, hidden),
        "attention.dense": (hidden, hidden),
        "mlp.dense_h_to_4h": (4 * hidden, hidden),
        "mlp.dense_4h_to_h": (hidden, 4 * hidden),
    }
    layer: dict[str, tuple[int, ...]] = {f"{k}.weight": s for k, s in matrices.items()}
    layer |= {f"{k}.bias": s[:1] for k, s in matrices.items()}
    for norm in ("input_layernorm", "post_attention_layernorm"):
        layer |= {f"{norm}.{p}": (hidden,) for p in ("weight", "bias")}
    return {
        "gpt_neox.embed_in.weight": (vocabulary, hidden),
        **{f"gpt_neox.layers.{i}.{k}": s for i in range(layers) for k, s in layer.items()},
        "gpt_neox.final_layer_norm.weight": (hidden,),
        "gpt_neox.final_layer_norm.bias": (hidden,),
        "embed_out.weight": (vocabulary, hidden),
    }


def make(folder: Path, gigabytes: float) -> None:
    """Write a Pythia of about ``gigabytes``: ``model.safetensors`` and ``model.pt``, fp16."""
    import torch
    from safetensors.torch import save_file

    layers = max(1, round((gigabytes * 1e9 - 4 * 50304 * HIDDEN) / (24 * HIDDEN * HIDDEN)))
    noise = torch.randn(50304 * HIDDEN).half()  # one storage's worth; sizes count, not values
    keys = shapes(HIDDEN, layers)
    tensors = {k: noise[: torch.Size(s).numel()].reshape(s).clone() for k, s in keys.items()}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    torch.save(tensors, folder / "model.pt")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--gb", type=float, nargs="+", default=[2, 8])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", type=Path, help="where to put the files; they are removed")
    parser.add_argument("--make", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.make:
        make(args.make, args.gb[0])
        return
    for gigabytes in args.gb:
        with tempfile.TemporaryDirectory(dir=args.folder) as scratch:
            made(Path(scratch), gigabytes)
            out = Path(scratch) / "out"
            for name, suffix, script in (
                ("safetensors", "safetensors", SAFETENSORS),
                ("torch", "pt", TORCH),
            ):
                source = Path(scratch) / f"model.{suffix}"
                found = commands(source, out / source.name)
                if gigabytes == args.gb[0]:  # they take minutes with more
                    found["load, rename, save"] = (
                        sys.executable,
                        "-c",
                        script,
                        str(source),
                        str(out / source.name),
                    )
                title = f"Rename, {name}, {source.stat().st_size / 1e9:.1f} GB"
                report(title, measure(found, out, args.rounds), "cp", limits=LIMITS)


def made(folder: Path, gigabytes: float) -> None:
    """``make`` in a process of its own: a child's peak memory begins with its parent's."""
    subprocess.run([sys.executable, __file__, "--make", folder, "--gb", str(gigabytes)], check=True)


def commands(source: Path, target: Path) -> dict[str, tuple[str, ...]]:
    """Name -> command: copies, and renames by remap."""
    remap = (str(REMAP), "convert", str(source), str(target), "-r", "magma/from-hf")
    return {
        "cp": ("cp", str(source), str(target)),
        "remap": remap,
        "cp, synced": ("sh", "-c", f"cp {source} {target} && sync {target}"),
        "remap, synced": (*remap, "--sync"),
    }


if __name__ == "__main__":
    main()
