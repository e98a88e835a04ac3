"""The main job on one page: a small Pythia becomes MAGMA's pipeline layer files, and comes back.

    python notebooks/demo.py [FOLDER]

Makes a Pythia-shaped checkpoint in FOLDER (default: a temporary one), runs remap as a user would, and
compares the tensors that came back with those that went in, by its own reading of the files. Needs
remap alone: no download, no transformers, no DeepSpeed.
"""

from __future__ import annotations

import json
import random
import shlex
import shutil
import struct
import subprocess
import sys
import tempfile
from array import array
from math import prod
from pathlib import Path

HIDDEN, LAYERS, HEADS, VOCAB = 64, 4, 4, 512

COMMANDS = """
remap inspect pythia
remap plan    pythia -r magma/from-hf
remap convert pythia magma -r magma/from-hf --to deepspeed-pipeline
remap convert magma back -r magma/from-hf --inverse --to safetensors
remap diff    pythia back
remap verify  magma
"""


def shapes() -> dict[str, tuple[int, ...]]:
    """The keys of a Hugging Face GPT-NeoX, as ``save_pretrained`` writes them."""
    found: dict[str, tuple[int, ...]] = {"gpt_neox.embed_in.weight": (VOCAB, HIDDEN)}
    for i in range(LAYERS):
        layer = f"gpt_neox.layers.{i}"
        for norm in ("input_layernorm", "post_attention_layernorm"):
            found |= {f"{layer}.{norm}.weight": (HIDDEN,), f"{layer}.{norm}.bias": (HIDDEN,)}
        for linear, rows, columns in (
            ("attention.query_key_value", 3 * HIDDEN, HIDDEN),
            ("attention.dense", HIDDEN, HIDDEN),
            ("mlp.dense_h_to_4h", 4 * HIDDEN, HIDDEN),
            ("mlp.dense_4h_to_h", HIDDEN, 4 * HIDDEN),
        ):
            found |= {f"{layer}.{linear}.weight": (rows, columns), f"{layer}.{linear}.bias": (rows,)}
    found |= {f"gpt_neox.final_layer_norm.{part}": (HIDDEN,) for part in ("weight", "bias")}
    return found | {"embed_out.weight": (VOCAB, HIDDEN)}


def make_pythia(folder: Path) -> None:
    """Write ``config.json`` and ``model.safetensors``; the weights depend on their keys only."""
    folder.mkdir(parents=True)
    config = {
        "architectures": ["GPTNeoXForCausalLM"],
        "model_type": "gpt_neox",
        "hidden_size": HIDDEN,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "intermediate_size": 4 * HIDDEN,
        "vocab_size": VOCAB,
        "rotary_pct": 0.25,
        "use_parallel_residual": True,
        "tie_word_embeddings": False,
    }
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    body = bytearray()
    for key, shape in shapes().items():
        noise = random.Random(key)
        values = array("f", (noise.gauss(0.0, 0.02) for _ in range(prod(shape))))
        if sys.byteorder == "big":
            values.byteswap()
        begin = len(body)
        body += values.tobytes()
        header[key] = {"dtype": "F32", "shape": shape, "data_offsets": [begin, len(body)]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + body)


def read_tensors(folder: Path) -> dict[str, tuple[str, list[int], bytes]]:
    """Key -> dtype, shape and bytes, read with nothing but the format's own description."""
    tensors = {}
    for file in sorted(folder.glob("*.safetensors")):
        data = file.read_bytes()
        start = 8 + struct.unpack("<Q", data[:8])[0]
        for key, entry in json.loads(data[8:start]).items():
            if key != "__metadata__":
                begin, end = entry["data_offsets"]
                tensors[key] = (entry["dtype"], entry["shape"], data[start + begin : start + end])
    return tensors


def run(folder: Path) -> int:
    """The whole demo. 0 where everything held."""
    for name in ("pythia", "magma", "back"):
        shutil.rmtree(folder / name, ignore_errors=True)
    make_pythia(folder / "pythia")
    for line in COMMANDS.strip().splitlines():
        print(f"\n$ {line}", flush=True)
        _, *arguments = shlex.split(line)
        done = subprocess.run([sys.executable, "-m", "remap", *arguments], cwd=folder)
        if done.returncode:
            print(f"failed with exit code {done.returncode}", file=sys.stderr)
            return 1
    there, back = read_tensors(folder / "pythia"), read_tensors(folder / "back")
    if not there or there != back:
        print("\nWhat came back differs from what went in.", file=sys.stderr)
        return 1
    size = sum(len(data) for _, _, data in there.values())
    print(f"\nAll {len(there)} tensors, {size:,} bytes, came back bit for bit.")
    return 0


def main() -> int:
    """Run in the folder of the command line, or in a temporary one."""
    if len(sys.argv) > 1:
        return run(Path(sys.argv[1]).resolve())
    with tempfile.TemporaryDirectory() as scratch:
        return run(Path(scratch) / "demo")


if __name__ == "__main__":
    sys.exit(main())
