"""The runs that DeepSpeed saves for the session, by name; layer files are read here without remap."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import torch
from judges import neox_parallel
from judges.neox_parallel import Run
from judges.neox_pipeline import launch

RUNS = {
    run.name: run
    for run in (
        Run("tp2", "", tp=2, save=True),
        Run("sequential-residual", "", parallel=False, tp=2, save=True),
        Run("new", "", flavour="new", tp=2, save=True),
        Run("llama", "", flavour="llama", parallel=False, tp=2, save=True),
        Run("magma", "", flavour="magma", tp=2, save=True),
        Run("tied", "", tied=True, tp=2, layers=2, save=True),
        Run("module", "", tp=2, pipeline=False, save=True),
        Run("pp2", "", pp=2, layers=12, save=True),
    )
}


TRAINED = {
    run.name: run
    for run in (
        Run("trained", "", tp=2, layers=2, save=True, trains=True),
        Run("trained-llama", "", flavour="llama", parallel=False, tp=2, layers=2, save=True, trains=True),
    )
}
"""Runs of ZeRO that were trained, so that no truth is known of them but their next losses."""


def save_all(root: Path) -> None:
    """Have DeepSpeed save them, each in a folder of its name; ``losses.json`` has the losses of those that
    are trained."""
    jobs = [replace(run, folder=str(root / name)) for name, run in (RUNS | TRAINED).items()]
    found = launch(jobs, 2, root / "jobs", program=neox_parallel.__file__)
    losses = {name: found[name][-1]["losses"] for name in TRAINED}
    (root / "losses.json").write_text(json.dumps(losses))


def params_of(run: Run) -> dict[str, str]:
    """What must be said of a run, since its files do not."""
    params = {"gpt_j_residual": str(run.parallel).lower()}
    return params | ({"gqa": "blocks"} if run.flavour == "llama" else {})


def stored(folder: Path) -> dict[str, torch.Tensor]:
    """``layer.key@rank`` -> what a layer file of any rank holds."""
    found = {}
    for file in sorted(folder.rglob("layer_*-model_states.pt")):
        layer, rank = (part.split("_")[1] for part in file.name.split("-")[:2])
        tensors = torch.load(file, weights_only=True)
        found |= {f"{int(layer)}.{key}@{int(rank)}": value for key, value in tensors.items()}
    return found
