"""What a command takes before it does anything: a small file inspected, planned, converted.

    python benchmarks/startup.py [--rounds 9]

Against Python itself, and against the imports that a script of one's own begins with.
"""

from __future__ import annotations

import argparse
import json
import struct
import sys
import tempfile
from math import prod
from pathlib import Path

from harness import REMAP, Limit, measure, report
from rename import shapes


def write(path: Path) -> None:
    """A Pythia of two layers, a few hundred bytes a matrix."""
    header, offset = {}, 0
    for key, shape in shapes(8, 2, 32).items():
        stop = offset + 2 * prod(shape)
        header[key] = {"dtype": "F16", "shape": shape, "data_offsets": [offset, stop]}
        offset = stop
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + bytes(offset))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--rounds", type=int, default=9)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        source, out = Path(scratch) / "model.safetensors", Path(scratch) / "out"
        write(source)
        python = sys.executable
        target = str(out / "x.safetensors")
        commands = {
            "python -c pass": (python, "-c", "pass"),
            "remap inspect": (str(REMAP), "inspect", str(source)),
            "remap plan": (str(REMAP), "plan", str(source), "-r", "magma/from-hf"),
            "remap convert": (str(REMAP), "convert", str(source), target, "-r", "magma/from-hf"),
            "import torch, safetensors": (python, "-c", "import torch, safetensors.torch"),
        }
        figures = measure(commands, out, args.rounds)
        report("Start-up", figures, "python -c pass", limits={"remap inspect": Limit(seconds=0.15)})


if __name__ == "__main__":
    main()
