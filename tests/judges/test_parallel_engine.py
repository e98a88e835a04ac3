"""Real DeepSpeed, with a tensor-parallel GPT-NeoX, loads every folder that remap wrote: the loss is the
undivided model's. DeepSpeed's own division loads, too, and gives another."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from judges import neox_parallel
from judges.neox_model import true_loss
from judges.neox_parallel import Run
from judges.neox_pipeline import launch
from judges.neox_runs import RUNS, TRAINED, params_of

from remap import api
from remap.reshard import reshard

Results = dict[str, dict[str, Any]]


def made(neox_runs: Path, root: Path) -> list[Run]:
    """Every way in which a folder is written, each with the engine that is to load it."""
    runs = [
        Run("whole", "tp2"),
        Run("whole-llama", "llama", flavour="llama", parallel=False),
        Run("stages", "tp2", pp=2),
        Run("ranks", "whole", tp=2),
        Run("ranks-sequential", "sequential-residual", parallel=False, tp=2),
        Run("ranks-llama", "whole-llama", flavour="llama", parallel=False, tp=2),
        Run("stages-magma", "magma", flavour="magma", pp=2),
        Run("ranks-tied", "tied", tied=True, layers=2, tp=2),
        Run("ranks-module", "module", tp=2, pipeline=False),
        Run("ranks-of-hf", "hf", tp=2),
        Run("ranks-and-stages", "tp2", tp=2, pp=2),
    ]
    known = {"gpt_j_residual": "true", "make_vocab_size_divisible_by": "32"}
    bare = known | {"heads": "4", "rotary_percent": "100", "inv_freq": "present"}
    out = []
    for run in runs:
        source = root / run.folder if (root / run.folder).exists() else neox_runs / run.folder
        target = root / run.name
        if run.folder == "hf":
            pack = ["gpt_neox/hf-to-neox"]
            api.convert(neox_runs / "tp2", root / "hf", pack, inverse=True, to="safetensors", params=known)
            api.convert(root / "hf", target, pack, to="deepspeed-pipeline", tp=2, params=bare)
        else:
            reshard(source, target, tp=run.tp, pp=run.pp, params=params_of(run))
        out.append(Run(**{**vars(run), "folder": str(target)}))
    return out


RESUMED = {
    "trained-2-1": 2,
    "trained-1-1": 1,
    "trained-2-2": 2,
    "trained-llama-2-1": 2,
    "trained-llama-1-1": 2,
}
"""Run, ranks and stages -> how many losses are the same. A bias that is the sum of its ranks' addends moves
by a step on every rank, so that other ranks train it otherwise."""


def resumed(neox_runs: Path, root: Path) -> list[Run]:
    """Trained runs as universal checkpoints, and of those again, for other ranks and stages."""
    out = []
    for text in RESUMED:
        name, tp, pp = text.rsplit("-", 2)
        tp, pp = int(tp), int(pp)
        run = replace(TRAINED[name], name=text, save=False, tp=tp, pp=pp)
        run = replace(run, folder=str(root / run.name))
        first = root / "trained-2-1"
        again = name == "trained" and first.exists()  # of a universal checkpoint for two ranks
        api.convert(
            first if again else neox_runs / name,
            run.folder,
            to="deepspeed-universal",
            at=None if again else "zero",
            tp=tp,
            pp=pp,
            params={**params_of(run), "make_vocab_size_divisible_by": "32"},
        )
        out.append(run)
    return out


@pytest.fixture(scope="module")
def loaded(neox_runs: Path, tmp_path_factory: pytest.TempPathFactory) -> Results:
    """Name of a folder -> what rank 0 says of it. One launch for each number of processes."""
    root = tmp_path_factory.mktemp("written")
    runs = made(neox_runs, root)
    runs.append(Run("deepspeeds-own", str(root / "whole"), tp=2))
    runs += resumed(neox_runs, root)
    found: Results = {}
    for count in (1, 2, 4):
        some = [r for r in runs if r.tp * r.pp == count]
        results = launch(some, count, root / f"jobs-{count}", program=neox_parallel.__file__)
        found |= {name: ranks[-1] for name, ranks in results.items()}
    return found


WRITTEN = [
    "whole",
    "whole-llama",
    "stages",
    "ranks",
    "ranks-sequential",
    "ranks-llama",
    "stages-magma",
    "ranks-tied",
    "ranks-module",
    "ranks-of-hf",
    "ranks-and-stages",
]


def loss(name: str) -> float:
    run = {
        "whole-llama": RUNS["llama"],
        "ranks-llama": RUNS["llama"],
        "ranks-sequential": RUNS["sequential-residual"],
        "stages-magma": RUNS["magma"],
        "ranks-tied": RUNS["tied"],
    }.get(name, RUNS["tp2"])
    return true_loss(run.shape)


@pytest.mark.parametrize("name", WRITTEN)
def test_the_loss_is_the_undivided_models(loaded: Results, name: str) -> None:
    assert loaded[name].get("found"), loaded[name]
    assert loaded[name]["loss"] == pytest.approx(loss(name), abs=2e-6)


@pytest.mark.parametrize("name", RESUMED)
def test_a_universal_checkpoint_is_gone_on_with_on_other_ranks(
    neox_runs: Path, loaded: Results, name: str
) -> None:
    wanted = json.loads((neox_runs / "losses.json").read_text())[name.rsplit("-", 2)[0]]
    same = RESUMED[name]
    assert loaded[name]["losses"][:same] == pytest.approx(wanted[:same], rel=1e-5)
    assert wanted[1] < wanted[0]  # the second loss needs the moments


def test_the_client_state_comes_along(loaded: Results) -> None:
    assert {loaded[n]["iteration"] for n in WRITTEN} == {7, 0}  # 0: from transformers there is none
    assert loaded["ranks-of-hf"]["iteration"] == 0


def test_deepspeeds_own_division_loads_and_is_wrong(loaded: Results) -> None:
    # it copies the biases that ranks sum (runtime/state_dict_factory.py), so they count twice
    own = loaded["deepspeeds-own"]
    assert own["found"]
    assert abs(own["loss"] - loss("ranks")) > 1e-4
