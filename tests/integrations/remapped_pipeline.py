"""One rank of a pipeline that loads through remap's checkpoint engine, or is watched while it loads.

As ``integration/neox_pipeline``, whose model and launcher it takes: only what loads is different.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

import torch
from judges.neox_pipeline import Job, build, main, pipeline_state

import remap
from remap.errors import RemapError

PROGRAM = __file__


@dataclass(frozen=True)
class Remapped(Job):
    """``how``: ``engine`` for the checkpoint engine; ``watch`` for DeepSpeed's own loading, watched;
    ``plain`` for that without a pipeline; ``parts`` for ``load_into`` of an FSDP2 model."""

    how: str = "engine"
    rules: tuple[str, ...] = ()
    policy: str = "magma"
    fit: str | None = None
    resave: str | None = None


def run(job: Remapped, stages: int) -> dict[str, Any]:
    """Load; say what was reported, and which tensors are not what they should be."""
    if job.how in WITHOUT_PIPELINE:
        return WITHOUT_PIPELINE[job.how](job)
    engine = build(job, stages)
    before = {k: v.clone() for k, v in pipeline_state(engine.module).items()}
    original = engine.checkpoint_engine
    error, reports = "", []
    try:
        reports = HOW[job.how](engine, job)
    except RemapError as e:
        error, reports = f"{type(e).__name__}: {e}", list(getattr(e, "reports", ()))
    after = pipeline_state(engine.module)
    expected = torch.load(job.expected, weights_only=True) if job.expected else {}
    return {
        "error": error,
        "counts": [dict(r.counts) for r in reports],
        "kept": sorted(k for k, v in after.items() if v.equal(before[k])),
        "loaded": sorted(
            k
            for k, v in after.items()
            if k in expected and v.dtype == expected[k].dtype and v.equal(expected[k])
        ),
        "put back": engine.checkpoint_engine is original,
    }


def load(engine: Any, job: Remapped) -> list[Any]:
    from remap.integrations.deepspeed_engine import RemapCheckpointEngine, load_checkpoint

    if job.resave is None:
        how: dict[str, Any] = {"policy": job.policy, "dtype": job.fit}
        with remap.watch(policy=job.policy, idle=True) as watched:  # to which it is a load like others
            report = load_checkpoint(engine, job.folder, job.rules, **how)
        assert len(watched.reports) == 1
        return [report]
    with RemapCheckpointEngine(engine, job.folder, job.rules, policy=job.policy) as remapped:
        engine.load_checkpoint(remapped.folder, load_module_only=True, load_module_strict=False)
        engine.save_checkpoint(job.resave)
    assert not Path(remapped.folder).exists()
    return [remapped.report]


class Whole(torch.nn.ModuleDict):
    """FSDP wants a model that runs."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x


def load_parts(job: Remapped) -> dict[str, Any]:
    """Into a model whose tensors are DTensors (FSDP2): copied, and put where nothing is yet."""
    from integrations.magma_model import build as build_magma
    from torch.distributed.fsdp import fully_shard

    expected = torch.load(job.expected or "", weights_only=True)
    wrong = []
    for device in ("cpu", "meta"):
        with torch.device(device):
            model = Whole(build_magma())
        for layer in (*model.values(), model):
            fully_shard(layer, mesh=torch.distributed.init_device_mesh("cpu", (2,)))
        remap.load_into(model, job.folder, job.rules, policy=job.policy)
        state = model.state_dict()
        wrong += [f"{device}: {k}" for k, v in expected.items() if not state[k].full_tensor().equal(v)]
        part = state["0.word_embeddings.weight"].to_local()
        wrong += [] if part.shape[0] == 256 else [f"{device}: {part.shape} of [512, 64]"]
    return {"wrong": wrong}


def watch_plain(job: Remapped) -> dict[str, Any]:
    """An engine without a pipeline: its module in another wrapper loads nothing of it."""
    import deepspeed

    def plain(module: torch.nn.Module) -> Any:
        return deepspeed.initialize(model=module, config={"train_micro_batch_size_per_gpu": 1})[0]

    plain(torch.nn.Linear(2, 3)).save_checkpoint(job.folder)
    try:
        with remap.watch(policy=job.policy):
            plain(torch.nn.Sequential(torch.nn.Linear(2, 3))).load_checkpoint(
                job.folder, load_module_strict=False, load_module_only=True
            )
    except RemapError as e:
        return {"error": str(e)}
    return {"error": ""}


def watch(engine: Any, job: Remapped) -> list[Any]:
    with remap.watch(policy=job.policy) as watched:
        engine.load_checkpoint(
            job.folder, load_module_only=True, load_module_strict=False, load_optimizer_states=False
        )
    return watched.reports


HOW = {"engine": load, "watch": watch}
WITHOUT_PIPELINE = {"plain": watch_plain, "parts": load_parts}


if __name__ == "__main__":
    main(Path(sys.argv[1]), Remapped, run)
