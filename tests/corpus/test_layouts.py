"""Every layout of transformers, judged by the key lists of real models under the version that it is for.

Without ``--data``, the sample in ``tests/data``.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from remap.packs import load_layout
from remap.types import Entry, TensorSpec

SAMPLE = Path(__file__).parent.parent / "data"
LAYOUTS = {
    "bert": "bert/hf",
    "bloom": "bloom/hf",
    "clip": "clip/hf",
    "deepseek": "deepseek/hf{n}",
    "dinov2": "dinov2/hf{n}",
    "falcon": "falcon/hf",
    "gpt2": "gpt2/hf",
    "gptneox": "gpt_neox/hf",
    "llama": "llama/hf",
    "llava": "llava/hf{n}",
    "mixtral": "mixtral/hf{n}",
    "opt": "opt/hf",
    "qwen2moe": "qwen2moe/hf{n}",
    "qwen2vl": "qwen2vl/hf{n}",
    "vit": "vit/hf{n}",
}
"""Family of a key list -> its layout; n is 4 or 5."""
HEADS = {
    "llama__llama-160m-tiny": (12, 12),
    "llama__llama-2-13b": (40, 40),
    "llama__llama-2-70b": (64, 8),
    "llama__llama-3.1-405b": (128, 8),
    "llama__llama-3.1-8b": (32, 8),
    "llama__llama-3.2-1b": (32, 8),
    "llama__llama-7b": (32, 32),
    "mixtral__mixtral-8x22b": (48, 8),
    "mixtral__mixtral-8x7b": (32, 8),
    "qwen2moe__qwen1.5-moe-a2.7b": (16, 16),
}
"""Heads, and heads of keys and values, where shapes depend on them and a key list does not say them."""
INNER = {"mixtral__mixtral-8x22b": 16384, "mixtral__mixtral-8x7b": 14336, "qwen2moe__qwen1.5-moe-a2.7b": 1408}
WRONG = {("t4.28.1", "llama__llama-2-70b"), ("t4.28.1", "llama__llama-3.1-405b")}
WRONG |= {("t4.28.1", f"llama__llama-{n}") for n in ("3.1-8b", "3.2-1b")}
"""That version had no grouped queries: the lists have shapes that these models never had."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    folder = metafunc.config.getoption("--data") or SAMPLE
    lists = [
        path
        for path in sorted(folder.glob("keys/t*/*.json.gz"))
        if path.name.split("__")[0] in LAYOUTS
        and path.stat().st_size
        and (path.parent.name, path.name.removesuffix(".json.gz")) not in WRONG
    ]
    assert lists, f"no key lists in {folder}"
    metafunc.parametrize("path", lists, ids=[f"{p.parent.name}-{p.name.split('.json')[0]}" for p in lists])


def test_a_models_keys_and_shapes_are_those_of_its_layout(path: Path) -> None:
    model = path.name.removesuffix(".json.gz")
    layout = load_layout(LAYOUTS[model.split("__")[0]].format(n=path.parent.name[1]))
    listed = json.loads(gzip.decompress(path.read_bytes()))
    entries = [
        Entry(k, TensorSpec.parse(f"{kind}[{','.join(map(str, shape))}]"))
        for k, (shape, kind) in listed.items()
    ]
    heads, kv_heads = HEADS.get(model, (0, 0))
    known = {"heads": heads, "kv_heads": kv_heads, "inner": INNER.get(model, 0)}
    given = {n: str(v) for n, v in known.items() if v and n in layout.params}
    assert list(layout.differences(entries, layout.resolve(entries, {}, given))) == []
