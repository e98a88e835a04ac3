"""Do time and memory grow with the number of keys and of files, and no faster?

    python benchmarks/scale.py [--most-keys 1000000] [--most-files 10000] [--folder DIR]

Checkpoints of tiny tensors are renamed: of more and more keys in ten files, of more and more files of ten
keys. One run each.
"""

from __future__ import annotations

import argparse
import json
import struct
import tempfile
from itertools import islice
from pathlib import Path

from harness import REMAP, Figure, Limit, once, report

PACK = """
remap: 1
pack: bench/keys
version: 1.0.0
title: experts by another name
stages:
  - rules:
      - {id: all, from: "model.layers.{i:int}.experts.{e:int}.{p}.weight", to: "decoder.{i}.moe.{e}.{p}.w"}
"""


def write(folder: Path, keys: int, files: int) -> None:
    """A folder of ``files`` shards that hold ``keys`` tensors of 128 bytes, and their index."""
    folder.mkdir()
    names = (
        f"model.layers.{i}.experts.{e}.{p}.weight"
        for i in range(keys)
        for e in range(250)
        for p in ("up", "down", "gate", "bias")
    )
    index = {}
    for number in range(files):
        shard = f"model-{number + 1:05}-of-{files:05}.safetensors"
        held = list(islice(names, keys // files))
        header = {
            k: {"dtype": "BF16", "shape": [8, 8], "data_offsets": [128 * i, 128 * i + 128]}
            for i, k in enumerate(held)
        }
        text = json.dumps(header).encode()
        (folder / shard).write_bytes(struct.pack("<Q", len(text)) + text + bytes(128 * len(held)))
        index.update(dict.fromkeys(held, shard))
    metadata = {"total_size": 128 * keys}
    (folder / "model.safetensors.index.json").write_text(
        json.dumps({"metadata": metadata, "weight_map": index})
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--most-keys", type=int, default=1_000_000)
    parser.add_argument("--most-files", type=int, default=10_000)
    parser.add_argument("--folder", type=Path, help="where to put the files; they are removed")
    args = parser.parse_args()
    grow("keys", [(n, 10) for n in (10_000, 100_000, 1_000_000) if n <= args.most_keys], args.folder)
    grow("files", [(10 * n, n) for n in (100, 1_000, 10_000) if n <= args.most_files], args.folder)


def grow(what: str, sizes: list[tuple[int, int]], folder: Path | None) -> None:
    """Rename a checkpoint of each size (keys, files), shards for shards."""
    figures: dict[str, Figure] = {}
    counts = []
    for keys, files in sizes:
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            pack, source = Path(scratch) / "pack.yaml", Path(scratch) / "in"
            pack.write_text(PACK)
            write(source, keys, files)
            size = str(128 * (keys // files))
            out = str(Path(scratch) / "out")
            run = once((str(REMAP), "convert", str(source), out, "-r", str(pack), "--shard-size", size))
        count = keys if what == "keys" else files
        counts.append(count)
        figures[f"{count:,} {what}"] = Figure((run,))
    first = next(iter(figures))
    limits = {
        name: Limit(ratio=1.5 * n / counts[0]) for name, n in list(zip(figures, counts, strict=True))[1:]
    }
    report(f"Growth with {what}", figures, first, limits=limits)


if __name__ == "__main__":
    main()
