"""Jobs for real DeepSpeed engines of several ranks and stages: save a run, or load one and say its loss.

    jobs.json --> rank 0 ... rank N-1 --> result-RANK.json

Run as a program by ``neox_pipeline.launch``, a process for every rank of every stage.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from judges.neox_model import (
    HEADS,
    HIDDEN,
    MULTIPLE,
    TOKENS,
    Embedding,
    FinalLinear,
    FinalNorm,
    Layer,
    Ranks,
    Shape,
    Whole,
    batch,
    loss_of,
    nothing,
    tied_logits,
)
from judges.neox_pipeline import main

STEPS, MORE = 3, 2


@dataclass(frozen=True)
class Run:
    """One engine. ``save``: it writes ``folder``; else its weights are set to zero and loaded from there.

    trains  under ZeRO-1: ``STEPS`` steps before it saves, or on from a universal checkpoint; it says its
            next losses
    """

    name: str
    folder: str
    flavour: str = "neox"
    layers: int = 4
    parallel: bool = True
    tied: bool = False
    tp: int = 1
    pp: int = 1
    pipeline: bool = True
    save: bool = False
    trains: bool = False

    @property
    def shape(self) -> Shape:
        return Shape(self.flavour, self.layers, self.parallel, self.tied, self.tp, self.pp)


class Unit:
    """What an engine without pipeline asks of its model-parallel unit."""

    def __init__(self) -> None:
        self.alone = [dist.new_group([r]) for r in range(dist.get_world_size())][dist.get_rank()]

    get_model_parallel_rank = staticmethod(lambda: Ranks.rank)
    get_model_parallel_world_size = staticmethod(lambda: Ranks.count)
    get_model_parallel_group = staticmethod(lambda: Ranks.group)
    get_data_parallel_rank = staticmethod(lambda: 0)
    get_data_parallel_world_size = staticmethod(lambda: 1)

    def get_data_parallel_group(self) -> Any:
        return self.alone


def specs(shape: Shape) -> list[Any]:
    from deepspeed.pipe import LayerSpec, TiedLayerSpec

    if shape.tied:
        tie = {"tied_weight_attr": "word_embeddings_weight"}
        first = TiedLayerSpec("embed", Embedding, shape, **tie)
        last = TiedLayerSpec("embed", Embedding, shape, forward_fn=tied_logits, **tie)
    else:
        first, last = LayerSpec(Embedding, shape), LayerSpec(FinalLinear, shape)
    layers = [LayerSpec(Layer, shape, i + 2) for i in range(shape.layers)]
    return [first, nothing, *layers, nothing, LayerSpec(FinalNorm, shape), last]


def build(run: Run) -> Any:
    """The engine of this process."""
    import deepspeed
    from deepspeed.runtime.pipe.topology import PipeModelDataParallelTopology

    topology = PipeModelDataParallelTopology(num_pp=run.pp, num_mp=run.tp, num_dp=1)
    Ranks.group, Ranks.rank, Ranks.count = None, 0, run.tp
    for ranks in topology.get_axis_comm_lists("model"):
        group = dist.new_group(ranks)
        if dist.get_rank() in ranks:
            Ranks.group, Ranks.rank = group, ranks.index(dist.get_rank())
    if run.pipeline:
        model: Any = deepspeed.pipe.PipelineModule(
            layers=specs(run.shape), loss_fn=loss_of, topology=topology, partition_method="uniform"
        )
        unit = None
    else:
        model, unit = Whole(run.shape), Unit()
    if not run.save:
        with torch.no_grad():
            for value in model.parameters():
                value.zero_()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01 if run.trains else 0.0)
    config: dict[str, Any] = {"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 1}
    if run.trains:
        config |= {"zero_optimization": {"stage": 1}, "zero_allow_untested_optimizer": True}
        config["checkpoint"] = {"load_universal": not run.save}
        config["gradient_clipping"] = 0.0  # its norm has not the parts of other ranks
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=config, mpu=unit)
    return engine


def client_state(run: Run) -> dict[str, Any]:
    """What GPT-NeoX adds (megatron/checkpointing.py)."""
    return {
        "iteration": 7,
        "args": {
            "num_layers": run.layers,
            "hidden_size": HIDDEN,
            "num_attention_heads": HEADS,
            "max_position_embeddings": TOKENS,
            "make_vocab_size_divisible_by": MULTIPLE,
            "padded_vocab_size": run.shape.rows,
            "model_parallel_size": run.tp,
        },
        "torch_rng_state": torch.get_rng_state(),
    }


def train(engine: Any, steps: int) -> list[float]:
    """The losses of so many steps, all of them on the one batch."""
    return [float(engine.train_batch(iter([batch()]))) for _ in range(steps)]


def do(run: Run, processes: int) -> dict[str, Any]:
    """Save, or load and give the loss on the one batch."""
    if run.tp * run.pp != processes:
        return {}
    engine = build(run)
    if run.trains:
        if run.save:
            train(engine, STEPS)
            engine.save_checkpoint(run.folder, client_state=client_state(run))
        else:
            engine.load_checkpoint(run.folder)
        return {"losses": train(engine, MORE), "steps": engine.global_steps}
    if run.save:
        engine.save_checkpoint(run.folder, tag="global_step7", client_state=client_state(run))
        return {}
    try:
        path, state = engine.load_checkpoint(run.folder, load_module_only=True, load_module_strict=True)
    except (RuntimeError, AssertionError, AttributeError, KeyError, ValueError) as e:
        return {"refused": f"{type(e).__name__}: {e}"[:500]}
    if run.pipeline:
        loss = engine.eval_batch(iter([batch()]))
    else:
        tokens, labels = batch()
        with torch.no_grad():
            loss = loss_of(engine.module(tokens), labels)
    return {"loss": float(loss), "found": bool(path), "iteration": (state or {}).get("iteration")}


if __name__ == "__main__":
    main(Path(sys.argv[1]), Run, do)
