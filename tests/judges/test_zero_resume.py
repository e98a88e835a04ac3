"""Real judge: DeepSpeed resumes a run that remap renamed, in a model that is wrapped in adapters.

Three steps are trained under ZeRO on two processes; remap makes a universal checkpoint of them, its weights
and moments under the names that the wrapped model has; the engine goes on from there. Adapters that begin at
zero change nothing, so its losses are those of the run that was never interrupted.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import remap

pytest.importorskip("deepspeed")

from judges.neox_pipeline import launch
from judges.zero_training import ZERO1, ZERO2, ZERO3, ZeroJob, __file__

WRAP = """
remap: 1
pack: test/wrap
version: 1.0.0
title: Parts of layers, wrapped in adapters
evidence: [{project: test}]
stages:
  - rules:
      - id: wrapped
        from: "{before:path}.{part:attention|mlp}.{rest:path}"
        to: "{before}.{part}.attn_block.{rest}"
      - keep: "**"
"""
ADAPTERS = """
      - {id: down, add: "layers.{i:int}.{part:attention|mlp}.adapter.0.weight", each: {i: 2}, shape: [2, 6],
         dtype: f32, fill: {std: 0.1, seed: 1}}
      - {id: down-bias, add: "layers.{i:int}.{part:attention|mlp}.adapter.0.bias", each: {i: 2}, shape: [2],
         dtype: f32, fill: zeros}
      - {id: up, add: "layers.{i:int}.{part:attention|mlp}.adapter.2.weight", each: {i: 2}, shape: [6, 2],
         dtype: f32, fill: zeros}
      - {id: up-bias, add: "layers.{i:int}.{part:attention|mlp}.adapter.2.bias", each: {i: 2}, shape: [6],
         dtype: f32, fill: zeros}
"""

RESUMED = {
    "zero1": ("zero1", ZERO1, {}),
    "trained-adapters": ("zero1", ZERO1, {"adapters": "trained"}),
    "bf16-aligned-to-zero2": ("zero1-bf16-aligned", ZERO2, {"bf16": True}),
    "zero3": ("zero3-bf16", ZERO3, {"bf16": True}),
    "zero1-to-zero3": ("zero1", ZERO3, {}),
    "pipeline": ("pipeline", ZERO1, {"stages": 2}),
}
"""Name -> the case that it goes on with, ZeRO's configuration from there, and more of the job."""

FIRST_ONLY = {
    "trained-adapters": "adapters that are trained change the second loss",
    **dict.fromkeys(("zero3", "zero1-to-zero3"), "ZeRO-3 gives every group the settings of the first one"),
}


@pytest.fixture(scope="module")
def resumed(zero_runs: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[list[float]]]:
    """Name -> the losses after the third step, of each process. One launch of DeepSpeed for all."""
    scratch = tmp_path_factory.mktemp("resumed")
    (scratch / "wrap.yaml").write_text(WRAP)
    (scratch / "adapters.yaml").write_text(WRAP + ADAPTERS)
    jobs = []
    for name, (case, zero, more) in RESUMED.items():
        pack = scratch / ("adapters.yaml" if "adapters" in more else "wrap.yaml")
        remap.convert(zero_runs / case, scratch / name, [pack], to="deepspeed-universal", at="zero")
        job = ZeroJob(name, str(scratch / name), zero, resume=True, **{"adapters": "frozen", **more})
        jobs.append(job)
    found = launch(jobs, 2, scratch / "logs", program=__file__)
    return {name: [rank["losses"] for rank in ranks] for name, ranks in found.items()}


@pytest.mark.parametrize("name", RESUMED)
def test_a_renamed_run_goes_on_as_if_it_had_not_been_interrupted(
    zero_runs: Path, resumed: dict[str, list[list[float]]], name: str
) -> None:
    case, _, _ = RESUMED[name]
    wanted = json.loads((zero_runs / "losses.json").read_text())[case]
    count = 1 if name in FIRST_ONLY else 2
    for mine, theirs in zip(resumed[name], wanted, strict=True):
        assert mine[:count] == pytest.approx(theirs[:count], rel=1e-5)
