"""Runs that real DeepSpeed saved in every parallel form, beside the undivided weights they were made of.

``pipeline/<case>/case.json`` says what a run is; ``pipeline/reference/<flavour>.pt`` is the truth.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import remap
from remap import api


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    folder = metafunc.config.getoption("--data") / "pipeline"
    cases = sorted(p.parent.name for p in folder.glob("*/case.json"))
    metafunc.parametrize("case", cases)


def said(case: dict[str, Any]) -> dict[str, str]:
    """What the files do not say."""
    params = {"gpt_j_residual": str(case["parallel_residual"]).lower(), "vocab_size": str(case["vocab"])}
    return params | ({"gqa": "blocks"} if case["flavor"] == "llama" else {})


def test_merged_it_is_the_truth(data: Path, case: str, tmp_path: Path) -> None:
    folder = data / "pipeline" / case
    about = json.loads((folder / "case.json").read_text())
    flavour = about["flavor"] if about["layers"] == 4 else f"{about['flavor']}_{about['layers']}layers"
    truth = torch.load(folder.parent / "reference" / f"{flavour}.pt", weights_only=True)
    found = remap.open(api.catalog(folder, params=said(about)))
    mine = {f"sequential.{k.removeprefix('sequential.')}": v for k, v in found.items()}
    tied = {k for k in truth if about["tied"] and "final_linear" in k}
    assert mine.keys() == truth.keys() - tied
    for key, value in mine.items():
        rows = truth[key].shape[0] if "embeddings" in key or "final_linear" in key else None
        wanted = truth[key].to(value.dtype)  # one case was trained in bf16
        assert torch.equal(value[:rows], wanted), key


def test_it_goes_to_transformers(data: Path, case: str, tmp_path: Path) -> None:
    folder = data / "pipeline" / case
    about = json.loads((folder / "case.json").read_text())
    packs = {"llama": ["gpt_neox/llama-to-neox"], "magma": ["magma/from-hf"]}.get(
        about["flavor"], ["gpt_neox/hf-to-neox"]
    )
    if not about["pipeline"]:
        packs.append("gpt_neox/pipeline-to-sequential")
    params = said(about)
    if about["flavor"] == "magma":
        params |= {"adapters": "drop"}
    if about["flavor"] == "llama":
        params |= {"heads": str(about["heads"]), "kv_heads": str(about["kv_heads"])}
    used = params if about["tp"] > 1 else {k: v for k, v in params.items() if k in ("adapters",)}
    api.convert(folder, tmp_path / "hf", packs, inverse=True, to="safetensors", params=used)
    assert any("layers.3." in key for key in remap.open(tmp_path / "hf"))
