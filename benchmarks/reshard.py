"""Resharding against ``cp`` and against the script that loads everything, as metaseq's reshard_fsdp.py does.

    python benchmarks/reshard.py [--gb 4] [--rounds 3] [--folder DIR]

A flat checkpoint of eight shards is made, weights in fp16 and two Adam moments in fp32, units of a layer;
it is merged into one file, and the merged one is cut into sixteen. Each is done by remap, by a script that
loads all shards, joins, cuts, pads and saves, and by ``cp`` of as many bytes.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from multiprocessing import get_context
from pathlib import Path

from harness import REMAP, arguments, measure, report

SCRIPT = """
import sys, re, glob, os, torch
source, target, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
paths = sorted(glob.glob(f"{source}/*.pt"), key=lambda p: int(re.findall(r"shard(\\d+)", p)[-1]))
states = [torch.load(p, weights_only=False) for p in paths]
numels = {
    f"{u['fsdp_path']}.flat_param_0" if u["fsdp_path"] else "flat_param_0": sum(p["numels"])
    for u in states[0]["shard_metadata"]["param_metadata"] for p in u["params"].values()
}
def cut(pieces, numel):
    whole = torch.cat(pieces)[:numel]
    size = -(-numel // count)
    out = []
    for i in range(count):
        piece = whole[i * size : (i + 1) * size]
        out.append(torch.nn.functional.pad(piece, [0, size - piece.numel()]).clone())
    return out
outs = [dict(states[0], model={}, last_optimizer_state={"state": {}}) for _ in range(count)]
for index, (key, numel) in enumerate(numels.items()):
    for out, piece in zip(outs, cut([s["model"][key] for s in states], numel)):
        out["model"][key] = piece
        out["last_optimizer_state"]["state"][index] = {"step": 3}
    for slot in ("exp_avg", "exp_avg_sq"):
        pieces = [s["last_optimizer_state"]["state"][index][slot] for s in states]
        for out, piece in zip(outs, cut(pieces, numel)):
            out["last_optimizer_state"]["state"][index][slot] = piece
for i, out in enumerate(outs):
    torch.save(out, f"{target}/checkpoint_last-model_part-0-shard{i}.pt")
"""


def make(folder: Path, gigabytes: float, shards: int = 8) -> None:
    """A checkpoint of about ``gigabytes``, ten bytes a parameter."""
    import torch

    hidden = 2048
    shapes = {
        "self_attn.qkv_proj.weight": (3 * hidden, hidden),
        "self_attn.out_proj.weight": (hidden, hidden),
        "fc1.weight": (4 * hidden, hidden),
        "fc2.weight": (hidden, 4 * hidden),
        "final_layer_norm.weight": (hidden + 1,),  # so that nothing divides
    }
    numels = {n: torch.Size(s).numel() for n, s in shapes.items()}
    numel = sum(numels.values())
    layers = max(1, round(gigabytes * 1e9 / (10 * numel)))
    size = -(-numel // shards)
    noise = torch.randn(size)
    folder.mkdir()
    for shard in range(shards):
        padding = size - min(max(numel - shard * size, 0), size)
        piece = noise.clone()
        piece[size - padding :] = 0
        units = [
            {
                "fsdp_path": f"decoder.layers.{i}",
                "params": {
                    "flat_param_0": {
                        "names": list(shapes),
                        "shapes": list(shapes.values()),
                        "numels": list(numels.values()),
                        "padding": padding,
                    }
                },
                "no_broadcast_optim_state": False,
                "shared_param_info": [],
            }
            for i in range(layers)
        ]
        state = {
            "cfg": {"common": {"model_parallel_size": 1}},
            "model": {f"decoder.layers.{i}.flat_param_0": piece.half() for i in range(layers)},
            "optimizer_history": [{"num_updates": 3}],
            "extra_state": {},
            "last_optimizer_state": {
                "state": {
                    i: {"step": 3, "exp_avg": piece.clone(), "exp_avg_sq": piece.clone()}
                    for i in range(layers)
                },
                "param_groups": [{"params": list(range(layers))}],
            },
            "shard_metadata": {"param_metadata": units, "buffer_names": []},
        }
        torch.save(state, folder / f"checkpoint_last-model_part-0-shard{shard}.pt")


def main() -> None:
    args = arguments(__doc__, gb=4)
    with tempfile.TemporaryDirectory(dir=args.folder) as scratch:
        out, source, one = (Path(scratch) / name for name in ("out", "raw", "one"))
        # In a process of its own: the kernel counts a parent's memory as its child's.
        spawn = get_context("spawn").Process(target=make, args=(source, args.gb))
        spawn.start()
        spawn.join()
        for before, after in ((8, 1), (1, 16)):
            commands = {
                "cp": ("cp", "-r", str(source), str(out / "made")),
                "remap": (str(REMAP), "reshard", str(source), str(out / "made"), "--fsdp", str(after)),
                "load all": (sys.executable, "-c", SCRIPT, str(source), str(out), str(after)),
            }
            nbytes = sum(p.stat().st_size for p in source.glob("*.pt"))
            title = f"{before} shards to {after}, {nbytes / 1e9:.1f} GB"
            report(title, measure(commands, out, args.rounds), "cp")
            if after == 1:
                subprocess.run((str(REMAP), "reshard", str(source), str(one), "--fsdp", "1"), check=True)
                shutil.rmtree(source)
                source = one


if __name__ == "__main__":
    main()
