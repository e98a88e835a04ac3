"""Tensor parallelism against ``cp``: a Pythia-shaped folder of Hugging Face to GPT-NeoX pipeline layers of
four ranks, these to two ranks, and back to Hugging Face.

    python benchmarks/parallel.py [--gb 2] [--rounds 3] [--folder DIR]

Layers are those of Pythia-6.9B (hidden 4096, 32 heads), as many as make the size, a file each. Memory is to
stay under 1 GiB whatever the size is. ``cp`` copies the source.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from multiprocessing import get_context
from pathlib import Path

from harness import REMAP, Limit, arguments, measure, report

HIDDEN, HEADS, WORDS = 4096, 32, 50432
MEMORY = Limit(megabytes=1074)
PACK = ("-r", "gpt_neox/hf-to-neox")


def make(folder: Path, gigabytes: float) -> None:
    """A folder of about ``gigabytes`` in fp16, in shards with an index."""
    import torch
    from safetensors.torch import save_file

    shapes = {
        "input_layernorm.weight": (HIDDEN,),
        "input_layernorm.bias": (HIDDEN,),
        "post_attention_layernorm.weight": (HIDDEN,),
        "post_attention_layernorm.bias": (HIDDEN,),
        "attention.query_key_value.weight": (3 * HIDDEN, HIDDEN),
        "attention.query_key_value.bias": (3 * HIDDEN,),
        "attention.dense.weight": (HIDDEN, HIDDEN),
        "attention.dense.bias": (HIDDEN,),
        "mlp.dense_h_to_4h.weight": (4 * HIDDEN, HIDDEN),
        "mlp.dense_h_to_4h.bias": (4 * HIDDEN,),
        "mlp.dense_4h_to_h.weight": (HIDDEN, 4 * HIDDEN),
        "mlp.dense_4h_to_h.bias": (HIDDEN,),
    }
    layer = 2 * sum(torch.Size(s).numel() for s in shapes.values())
    ends = 2 * 2 * WORDS * HIDDEN
    layers = max(1, round((gigabytes * 1e9 - ends) / layer))
    folder.mkdir()
    outer = {
        "gpt_neox.embed_in.weight": (WORDS, HIDDEN),
        "embed_out.weight": (WORDS, HIDDEN),
        "gpt_neox.final_layer_norm.weight": (HIDDEN,),
        "gpt_neox.final_layer_norm.bias": (HIDDEN,),
    }
    files = [outer] + [{f"gpt_neox.layers.{i}.{k}": s for k, s in shapes.items()} for i in range(layers)]
    index = {}
    for number, held in enumerate(files):
        tensors = {k: torch.rand(s).half() for k, s in held.items()}
        name = f"model-{number + 1:05d}-of-{layers + 1:05d}.safetensors"
        save_file(tensors, folder / name)
        index |= dict.fromkeys(tensors, name)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
    config = {
        "model_type": "gpt_neox",
        "num_hidden_layers": layers,
        "hidden_size": HIDDEN,
        "num_attention_heads": HEADS,
        "use_parallel_residual": True,
        "vocab_size": WORDS,
    }
    (folder / "config.json").write_text(json.dumps(config))


def main() -> None:
    args = arguments(__doc__, gb=2)
    with tempfile.TemporaryDirectory(dir=args.folder) as name:
        folder = Path(name)
        source, four, outputs = folder / "hf", folder / "tp4", folder / "out"
        maker = get_context("spawn").Process(target=make, args=(source, args.gb))
        maker.start()  # by another process: a child's peak counts what its parent held when it was begun
        maker.join()
        to_four = [str(REMAP), "convert", str(source), "", *PACK, "--to", "deepspeed-pipeline", "--tp", "4"]
        subprocess.run([*to_four[:3], str(four), *to_four[4:]], check=True)
        figures = measure(
            {
                "cp": ["cp", "-r", str(source), str(outputs / "copy")],
                "Hugging Face to 4 ranks": [*to_four[:3], str(outputs / "tp4"), *to_four[4:]],
                "4 ranks to 2": [str(REMAP), "reshard", str(four), str(outputs / "tp2"), "--tp", "2"],
                "4 ranks to Hugging Face": [
                    *(str(REMAP), "convert", str(four), str(outputs / "hf"), *PACK),
                    *("--inverse", "--to", "safetensors"),
                ],
            },
            outputs,
            args.rounds,
        )
        size = sum(f.stat().st_size for f in source.iterdir()) / 1e9
        shutil.rmtree(source)
    report(
        f"Tensor parallelism, {size:.1f} GB",
        figures,
        "cp",
        limits=dict.fromkeys([n for n in figures if n != "cp"], MEMORY),
    )


if __name__ == "__main__":
    main()
