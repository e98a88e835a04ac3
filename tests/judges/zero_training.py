"""Small models that real DeepSpeed trains under ZeRO on two processes: saved, gone on with, and resumed.

Sizes are odd, a weight is tied and another frozen, there are a buffer and two parameter groups. After
``STEPS`` steps a job saves its checkpoint and the truth (weights and moments, gathered from the live engine),
and trains on; or it resumes from a universal checkpoint there, in a model with adapters around its parts.
"""

from __future__ import annotations

import json
import sys
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from judges.neox_pipeline import launch, main, make_weight
from torch import nn

STEPS = 3
MORE = 2
WORDS, HIDDEN = 11, 6

ZERO1 = {"stage": 1}
ZERO2 = {"stage": 2}
ZERO3 = {"stage": 3, "stage3_param_persistence_threshold": 0, "stage3_model_persistence_threshold": 0}
CASES: Mapping[str, tuple[Mapping[str, Any], Mapping[str, Any]]] = {
    "zero1": (ZERO1, {}),
    "zero1-bf16-aligned": ({**ZERO1, "parameter_alignment": True}, {"bf16": True}),
    "zero2-roundrobin": ({**ZERO2, "round_robin_gradients": True}, {}),
    "zero3-bf16": ({**ZERO3, "sub_group_size": 40}, {"bf16": True}),
    "pipeline": (ZERO1, {"stages": 2}),
}
"""Case -> DeepSpeed's configuration of ZeRO, and what else its job is made with."""


@dataclass
class ZeroJob:
    """One training run.

    folder   where it saves, or resumes from
    zero     DeepSpeed's ``zero_optimization``
    truth    file of weights and moments after ``STEPS`` steps, {name: {fp32, exp_avg, exp_avg_sq}}
    bf16     train in bfloat16
    stages   pipeline stages, 0 for a model without pipeline
    adapters "" for none, "frozen" or "trained"
    resume   True to load a universal checkpoint
    """

    name: str
    folder: str
    zero: Mapping[str, Any]
    truth: str = ""
    bf16: bool = False
    stages: int = 0
    adapters: str = ""
    resume: bool = False


class Adapter(nn.Module):
    """A block as MAGMA wraps it. Its last layer is zero, so that at first it changes nothing."""

    def __init__(self, block: nn.Module, trained: bool) -> None:
        super().__init__()
        self.adapter = nn.Sequential(nn.Linear(HIDDEN, 2), nn.ReLU(), nn.Linear(2, HIDDEN))
        nn.init.zeros_(self.adapter[2].weight)
        nn.init.zeros_(self.adapter[2].bias)
        self.adapter.requires_grad_(trained)
        self.attn_block = block

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.attn_block(x)
        return y + self.adapter(y)


class Block(nn.Module):
    """Something with the names of a transformer layer, its parts wrapped where there are adapters."""

    def __init__(self, adapters: str) -> None:
        super().__init__()
        self.attention: nn.Module = nn.Sequential(OrderedDict(dense=nn.Linear(HIDDEN, HIDDEN)))
        up, down = nn.Linear(HIDDEN, HIDDEN + 1), nn.Linear(HIDDEN + 1, HIDDEN, bias=False)
        self.mlp: nn.Module = nn.Sequential(OrderedDict(up=up, act=nn.GELU(), down=down))
        if adapters:
            self.attention = Adapter(self.attention, adapters == "trained")
            self.mlp = Adapter(self.mlp, adapters == "trained")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.mlp(x + self.attention(x))


class Net(nn.Module):
    """The model without pipeline."""

    def __init__(self, adapters: str) -> None:
        super().__init__()
        self.embed = nn.Embedding(WORDS, HIDDEN)
        self.norm = nn.LayerNorm(HIDDEN)
        self.layers = nn.ModuleList(Block(adapters) for _ in range(2))
        self.frozen = nn.Linear(HIDDEN, 5)
        self.gain = nn.Parameter(torch.ones(1))
        self.head = nn.Linear(HIDDEN, WORDS, bias=False)
        self.register_buffer("table", torch.arange(6.0))
        self.head.weight = self.embed.weight
        self.frozen.requires_grad_(False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.norm(self.embed(tokens) + self.table.to(self.embed.weight.dtype) * 0.01)
        for layer in self.layers:
            x = layer(x)
        return self.head(x * self.gain) + self.frozen(x).sum(-1, keepdim=True)


class Words(nn.Module):
    """First layer of the pipeline, and by way of its weight the last."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(WORDS, HIDDEN)

    @property
    def words(self) -> torch.Tensor:
        return self.embed.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.embed(tokens)


def logits(first: Words, x: torch.Tensor) -> torch.Tensor:
    return nn.functional.linear(x, first.words)


def loss_of(out: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(out.float().flatten(0, 1), wanted.flatten())


def make_model(job: ZeroJob) -> nn.Module:
    """The model of a job. Its weights depend on their names in the model without adapters; a model that is to
    resume is filled with what no checkpoint has."""
    if job.stages:
        from deepspeed.pipe import LayerSpec, PipelineModule, TiedLayerSpec

        tie = {"tied_weight_attr": "words"}
        blocks = [LayerSpec(Block, job.adapters) for _ in range(2)]
        layers = [
            TiedLayerSpec("embed", Words, **tie),
            *blocks,
            TiedLayerSpec("embed", Words, forward_fn=logits, **tie),
        ]
        model = PipelineModule(
            layers=layers, num_stages=job.stages, loss_fn=loss_of, partition_method="uniform"
        )
    else:
        model = Net(job.adapters)
    with torch.no_grad():
        for name, value in model.named_parameters():
            if ".adapter." in name:
                continue
            trained = value.requires_grad
            value.copy_(make_weight(name.replace("attn_block.", ""), tuple(value.shape)) * 0.3)
            if job.resume and trained:
                value.fill_(7.0)
    return model


def build(job: ZeroJob) -> Any:
    """The engine."""
    import deepspeed

    model = make_model(job)
    trained = [p for p in model.parameters() if p.requires_grad]
    groups = [
        {"params": [p for p in trained if p.ndim > 1], "weight_decay": 0.01},
        {"params": [p for p in trained if p.ndim == 1], "weight_decay": 0.0},
    ]
    config = {
        "train_micro_batch_size_per_gpu": 2,
        "gradient_accumulation_steps": 1,
        "steps_per_print": 1000,
        "bf16": {"enabled": job.bf16},
        "zero_optimization": job.zero,
        "zero_allow_untested_optimizer": True,
        "checkpoint": {"load_universal": job.resume},
    }
    engine, *_ = deepspeed.initialize(model=model, optimizer=torch.optim.Adam(groups, lr=0.01), config=config)
    return engine


def train(engine: Any, job: ZeroJob, first: int, count: int) -> list[float]:
    """The losses of this process at steps ``first`` and after; the data depends on step and rank."""
    losses = []
    rank = 0 if job.stages else torch.distributed.get_rank()
    for step in range(first, first + count):
        generator = torch.Generator().manual_seed(1000 * step + rank)
        tokens = torch.randint(0, WORDS, (2, 6), generator=generator)
        if job.stages:
            losses.append(float(engine.train_batch(iter([(tokens[:, :-1], tokens[:, 1:])]))))
            continue
        loss = loss_of(engine(tokens[:, :-1]), tokens[:, 1:])
        engine.backward(loss)
        engine.step()
        losses.append(float(loss.detach()))
    return losses


def gather(engine: Any) -> dict[str, dict[str, torch.Tensor]]:
    """What the engine holds of every weight. It links moments after the first group's first step, so that
    those of the second have to be linked again."""
    import deepspeed
    from deepspeed.utils import safe_get_full_fp32_param, safe_get_full_optimizer_state

    if hasattr(engine.optimizer, "_hp_optimizer_states_linked"):
        engine.optimizer._hp_optimizer_states_linked = False
        engine.optimizer._lazy_init_hp_params_optimizer_state()
    found = {}
    for name, value in engine.module.named_parameters():
        if value.requires_grad:
            held = {s: safe_get_full_optimizer_state(value, s) for s in ("exp_avg", "exp_avg_sq")}
            held["fp32"] = safe_get_full_fp32_param(value)
        else:
            with deepspeed.zero.GatheredParameters([value], enabled=hasattr(value, "ds_id")):
                held = {"fp32": value.detach()}
        found[name] = {s: v.detach().float().cpu().clone() for s, v in held.items()}
    return found


def write_cases(root: Path) -> None:
    """Train all cases; see the fixture ``zero_runs``."""
    jobs = [
        ZeroJob(n, str(root / n), zero, str(root / f"{n}.truth"), **more) for n, (zero, more) in CASES.items()
    ]
    found = launch(jobs, 2, root / "logs", program=__file__)
    losses = {name: [rank["losses"] for rank in ranks] for name, ranks in found.items()}
    (root / "losses.json").write_text(json.dumps(losses))


def run(job: ZeroJob, _: int) -> dict[str, Any]:
    """Do one job; gives the losses after ``STEPS`` steps, of this process."""
    engine = build(job)
    if job.resume:
        path, _ = engine.load_checkpoint(job.folder)
        assert path is not None
        assert engine.global_steps == STEPS
        return {"losses": train(engine, job, STEPS, MORE)}
    train(engine, job, 0, STEPS)
    torch.save(gather(engine), f"{job.truth}.{torch.distributed.get_rank()}")
    engine.save_checkpoint(job.folder, client_state={"iteration": STEPS})
    return {"losses": train(engine, job, STEPS, MORE)}


if __name__ == "__main__":
    main(Path(sys.argv[1]), ZeroJob, run)
