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

from harness import measure, report

REMAP = Path(sys.executable).with_name("remap")
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


def make(folder: Path, gigabytes: float) -> None:
    """Write a Pythia of about ``gigabytes``: ``model.safetensors`` and ``model.pt``, fp16."""
    import torch
    from safetensors.torch import save_file

    hidden = 2048
    layer = {
        "input_layernorm.weight": (hidden,),
        "input_layernorm.bias": (hidden,),
        "post_attention_layernorm.weight": (hidden,),
        "post_attention_layernorm.bias": (hidden,),
        "attention.query_key_value.weight": (3 * hidden, hidden),
        "attention.query_key_value.bias": (3 * hidden,),
        "attention.dense.weight": (hidden, hidden),
        "attention.dense.bias": (hidden,),
        "mlp.dense_h_to_4h.weight": (4 * hidden, hidden),
        "mlp.dense_h_to_4h.bias": (4 * hidden,),
        "mlp.dense_4h_to_h.weight": (hidden, 4 * hidden),
        "mlp.dense_4h_to_h.bias": (hidden,),
    }
    ends = {
        "gpt_neox.embed_in.weight": (50304, hidden),
        "gpt_neox.final_layer_norm.weight": (hidden,),
        "gpt_neox.final_layer_norm.bias": (hidden,),
        "embed_out.weight": (50304, hidden),
    }
    per_layer = 2 * 12 * hidden * hidden
    layers = max(1, round((gigabytes * 1e9 - 4 * 50304 * hidden) / per_layer))
    shapes = {f"gpt_neox.layers.{i}.{k}": s for i in range(layers) for k, s in layer.items()} | ends
    noise = torch.randn(50304 * hidden).half()  # one storage's worth; sizes count, not values
    tensors = {k: noise[: torch.Size(s).numel()].reshape(s).clone() for k, s in shapes.items()}
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
            # In a process of its own: a child's peak memory begins with its parent's.
            subprocess.run([sys.executable, __file__, "--make", scratch, "--gb", str(gigabytes)], check=True)
            one, other = Path(scratch) / "model.safetensors", Path(scratch) / "model.pt"
            out = Path(scratch) / "out"
            pack = ("-r", "magma/from-hf")
            for name, source, script in (("safetensors", one, SAFETENSORS), ("torch", other, TORCH)):
                target = out / source.name
                commands = {
                    "cp": ("cp", str(source), str(target)),
                    "cp, synced": ("sh", "-c", f"cp {source} {target} && sync {target}"),
                    "remap": (str(REMAP), "convert", str(source), str(target), *pack),
                    "remap, synced": (str(REMAP), "convert", str(source), str(target), *pack, "--sync"),
                    f"{name}, load + save": (sys.executable, "-c", script, str(source), str(target)),
                }
                title = f"{name}, {source.stat().st_size / 1e9:.1f} GB"
                report(title, measure(commands, out, args.rounds), "cp")


if __name__ == "__main__":
    main()
