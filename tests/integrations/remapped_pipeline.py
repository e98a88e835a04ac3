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
from integration.neox_pipeline import Job, build, main, pipeline_state

import remap
from remap.errors import RemapError

PROGRAM = __file__


@dataclass(frozen=True)
class Remapped(Job):
    """``how``: ``engine`` for the checkpoint engine; ``watch`` for DeepSpeed's own loading, watched."""

    how: str = "engine"
    rules: tuple[str, ...] = ()
    policy: str = "magma"
    fit: str | None = None
    resave: str | None = None


def run(job: Remapped, stages: int) -> dict[str, Any]:
    """Load; say what was reported, and which tensors are not what they should be."""
    engine = build(job, stages)
    before = {k: v.clone() for k, v in pipeline_state(engine.module).items()}
    original = engine.checkpoint_engine
    error, reports = "", []
    try:
        reports = load(engine, job) if job.how == "engine" else watch(engine, job)
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
        return [load_checkpoint(engine, job.folder, job.rules, **how)]
    with RemapCheckpointEngine(engine, job.folder, job.rules, policy=job.policy) as remapped:
        engine.load_checkpoint(remapped.folder, load_module_only=True, load_module_strict=False)
        engine.save_checkpoint(job.resave)
    assert not Path(remapped.folder).exists()
    return [remapped.report]


def watch(engine: Any, job: Remapped) -> list[Any]:
    with remap.watch(policy=job.policy) as watched:
        engine.load_checkpoint(
            job.folder, load_module_only=True, load_module_strict=False, load_optimizer_states=False
        )
    return watched.reports


if __name__ == "__main__":
    main(Path(sys.argv[1]), Remapped, run)
