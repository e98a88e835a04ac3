"""Files that real fairscale wrote: merged, unflattened, cut anew, and merged by fairscale itself."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from formats.metaseq.samples import load, same

from remap.expr import Take
from remap.expr.blocks import evaluate
from remap.formats import registry
from remap.reshard import reshard

pytest.importorskip("fairscale")

WORLD = 3


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("fairscale") / "run"
    script = Path(__file__).with_name("fairscale_ranks.py")
    done = subprocess.run(
        [sys.executable, script, str(folder), str(WORLD)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return folder


def test_the_merged_model_is_what_was_trained(run):
    truth = load(run / "truth")["weights"]
    catalog = registry.open_catalog(run / "run-shard1.pt")
    found = {k: evaluate(Take(e)) for k, e in catalog.entries.items()}
    assert catalog.aliases == {"out.weight": "emb.weight"}
    assert found.keys() == {*truth, "out.weight", "version"}
    for name, value in truth.items():
        assert torch.equal(found[name], value), name


def test_unflattened_moments_are_those_that_adam_has(run, tmp_path):
    truth = load(run / "truth")
    reshard(run / "run-shard0.pt", tmp_path / "u.pt", unflatten=True)
    state = load(tmp_path / "u.pt")
    held = state["last_optimizer_state"]["state"]
    order = list(truth["weights"])
    for slot in ("exp_avg", "exp_avg_sq"):
        for i, name in enumerate(order):
            assert torch.equal(held[i][slot], truth[slot][name]), (slot, name)
    assert held[0]["step"] == 3


@pytest.mark.parametrize("count", [1, 2, 4, 7])
def test_there_and_back_are_the_files_that_fairscale_wrote(run, tmp_path, count):
    reshard(run, tmp_path / "there", fsdp=count)
    reshard(tmp_path / "there", tmp_path / "back", fsdp=WORLD)
    for i in range(WORLD):
        a, b = (load(f / f"run-shard{i}.pt") for f in (run, tmp_path / "back"))
        for state in (a, b):
            state.pop("extra_state")  # per rank
            state["model"] = dict(state["model"])
        assert not same(a, b)


def test_fairscale_merges_what_remap_cut(run, tmp_path):
    from fairscale.nn import FullyShardedDataParallel

    truth = load(run / "truth")["weights"]
    reshard(run, tmp_path / "out", fsdp=4)
    states = [load(tmp_path / "out" / f"run-shard{i}.pt") for i in range(4)]
    merged = FullyShardedDataParallel.consolidate_shard_weights(
        [s["model"] for s in states], [s["shard_metadata"] for s in states], strict=False
    )
    for name, value in truth.items():
        assert torch.equal(merged[name], value), name
