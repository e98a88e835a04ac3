"""A GPT-NeoX of plain torch modules under the real DeepSpeed pipeline engine, on CPU.

Only names, shapes and the layer list are GPT-NeoX's (with ``adapters``, MAGMA's); whatever saves or
loads is DeepSpeed's own. Tests run it as a program, since every pipeline stage is a process:

    jobs.json ──> rank 0 ... rank N-1 ──> result-RANK.json

Base weights start at SENTINEL, adapters at noise: a weight that was not loaded, or an adapter that
was touched, shows. Weights to be saved come from their names (``make_weight``).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zlib
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from socket import socket
from typing import Any

import torch
from torch import nn

SENTINEL = 7.0
ADAPTER_FACTOR = 4
HIDDEN, VOCAB = 64, 512


@dataclass(frozen=True)
class Job:
    """One model to build, and to load from or save to ``folder``.

    expected  for a load: a torch file with every base tensor, ``{index}.{name}``
    strict    the load is strict, and ``expected`` has the adapters, too
    """

    name: str
    folder: str
    layers: int = 4
    dtype: str = "float32"
    tied: bool = False
    adapters: bool = True
    expected: str | None = None
    save: bool = False
    strict: bool = False


def make_weight(key: str, shape: tuple[int, ...]) -> torch.Tensor:
    """The value of a weight, from its pipeline key (``2.attention.dense.weight``)."""
    generator = torch.Generator().manual_seed(zlib.crc32(key.encode()))
    return torch.randn(shape, generator=generator)


class Embedding(nn.Module):
    """Layer 0."""

    def __init__(self) -> None:
        super().__init__()
        self.word_embeddings = nn.Embedding(VOCAB, HIDDEN)

    @property
    def word_embeddings_weight(self) -> torch.Tensor:
        return self.word_embeddings.weight


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.query_key_value = nn.Linear(HIDDEN, 3 * HIDDEN)
        self.dense = nn.Linear(HIDDEN, HIDDEN)


class MLP(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.dense_h_to_4h = nn.Linear(HIDDEN, 4 * HIDDEN)
        self.dense_4h_to_h = nn.Linear(4 * HIDDEN, HIDDEN)


class Adapter(nn.Module):
    """What MAGMA's ``add_adapters`` puts in a block's place: the block becomes ``attn_block``."""

    def __init__(self, block: nn.Module) -> None:
        super().__init__()
        inner = HIDDEN // ADAPTER_FACTOR
        self.adapter = nn.Sequential(nn.Linear(HIDDEN, inner), nn.ReLU(), nn.Linear(inner, HIDDEN))
        self.attn_block = block


class TransformerLayer(nn.Module):
    """Layers 2 to N+1."""

    def __init__(self, adapters: bool) -> None:
        super().__init__()
        self.input_layernorm = nn.LayerNorm(HIDDEN)
        self.attention = Adapter(Attention()) if adapters else Attention()
        self.post_attention_layernorm = nn.LayerNorm(HIDDEN)
        self.mlp = Adapter(MLP()) if adapters else MLP()


class FinalNorm(nn.Module):
    """Layer N+3."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(HIDDEN)


class FinalLinear(nn.Module):
    """Layer N+4, where embedding and head are not tied."""

    def __init__(self) -> None:
        super().__init__()
        self.final_linear = nn.Linear(HIDDEN, VOCAB, bias=False)


def tied_logits(embedding: Embedding, x: torch.Tensor) -> torch.Tensor:
    """Layer N+4, where they are: a function of layer 0, so it has no file."""
    return nn.functional.linear(x, embedding.word_embeddings_weight)


def before_layers(x: torch.Tensor) -> torch.Tensor:
    """Layer 1: a plain function leaves a gap in the numbering of the files."""
    return x


def after_layers(x: torch.Tensor) -> torch.Tensor:
    """Layer N+2: another gap."""
    return x


def build(job: Job, stages: int) -> Any:
    """The DeepSpeed engine of this process."""
    import deepspeed
    from deepspeed.pipe import LayerSpec, PipelineModule, TiedLayerSpec
    from deepspeed.runtime.pipe.topology import PipeModelDataParallelTopology

    if job.tied:
        tie = {"tied_weight_attr": "word_embeddings_weight"}
        first = TiedLayerSpec("embed", Embedding, **tie)
        last = TiedLayerSpec("embed", Embedding, forward_fn=tied_logits, **tie)
    else:
        first, last = LayerSpec(Embedding), LayerSpec(FinalLinear)
    blocks = [LayerSpec(TransformerLayer, job.adapters) for _ in range(job.layers)]
    model = PipelineModule(
        layers=[first, before_layers, *blocks, after_layers, LayerSpec(FinalNorm), last],
        topology=PipeModelDataParallelTopology(num_pp=stages, num_mp=1, num_dp=1),
        partition_method="uniform",
    )
    model.to(getattr(torch, job.dtype))
    with torch.no_grad():
        for key, value in pipeline_state(model).items():
            if job.save or ".adapter." in key:
                value.copy_(make_weight(key, tuple(value.shape)))
            else:
                value.fill_(SENTINEL)
    engine, *_ = deepspeed.initialize(model=model, config={"train_micro_batch_size_per_gpu": 1})
    return engine


def pipeline_state(model: Any) -> dict[str, torch.Tensor]:
    """What this stage holds, ``{index}.{name}``: the tied layer's own index, never ``tied_modules``."""
    state = {}
    for local, layer in enumerate(model.forward_funcs):
        if isinstance(layer, nn.Module):
            named = layer.state_dict(keep_vars=True).items()
            state |= {f"{model._local_start + local}.{name}": value.detach() for name, value in named}
    for module in model.tied_modules.values():
        state |= {f"0.{name}": value.detach() for name, value in module.state_dict(keep_vars=True).items()}
    return state


def run(job: Job, stages: int) -> dict[str, Any]:
    """Do one job; for a load, say which tensors this stage holds and what is wrong with them."""
    engine = build(job, stages)
    if job.save:
        engine.save_checkpoint(job.folder)
        return {}
    before = {k: v.clone() for k, v in pipeline_state(engine.module).items()}
    path, _ = engine.load_checkpoint(
        job.folder, load_module_only=True, load_module_strict=job.strict, load_optimizer_states=False
    )
    after = pipeline_state(engine.module)
    expected = torch.load(job.expected, weights_only=True)
    problems = [] if path else ["DeepSpeed found no checkpoint"]
    for key, value in after.items():
        if ".adapter." in key and not job.strict:
            if not torch.equal(value, before[key]):
                problems.append(f"{key}: the adapter was touched")
        elif key not in expected:
            problems.append(f"{key}: not expected")
        elif value.dtype != expected[key].dtype or not torch.equal(value, expected[key]):
            problems.append(f"{key}: not bit-equal")
    return {"keys": sorted(after), "problems": problems}


def launch(
    jobs: list[Job], stages: int, scratch: Path, timeout: float = 300, program: str = __file__
) -> dict[str, list[dict[str, Any]]]:
    """Run ``jobs`` on ``stages`` processes, each of which runs ``program``. Job's name -> the result of each
    stage."""
    scratch.mkdir(parents=True)
    (scratch / "jobs.json").write_text(json.dumps([asdict(job) for job in jobs]))
    with socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    ranks = []
    for rank in range(stages):
        environment = os.environ | {
            "DS_ACCELERATOR": "cpu",
            "PYTHONPATH": str(Path(__file__).parents[1]),
            "OMP_NUM_THREADS": "1",
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": str(stages),
            "LOCAL_SIZE": str(stages),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
        }
        with (scratch / f"log-{rank}.txt").open("w") as log:
            command = [sys.executable, program, str(scratch)]
            ranks.append(subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT))
    try:
        codes = [process.wait(timeout) for process in ranks]
    finally:
        for process in ranks:
            process.kill()
    if any(codes):
        logs = [(scratch / f"log-{rank}.txt").read_text()[-4000:] for rank in range(stages)]
        raise RuntimeError("DeepSpeed failed:\n" + "\n---\n".join(logs))
    results = [json.loads((scratch / f"result-{rank}.json").read_text()) for rank in range(stages)]
    return {job.name: [result[job.name] for result in results] for job in jobs}


def main(scratch: Path, kind: type[Job] = Job, do: Callable[[Any, int], dict[str, Any]] = run) -> None:
    """Body of one rank: jobs of ``kind`` are done by ``do``."""
    import deepspeed

    torch.set_num_threads(1)
    # Otherwise init_distributed compiles a shared-memory op, which needs a C++ compiler and a minute.
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    deepspeed.init_distributed(dist_backend="gloo", verbose=False)
    jobs = [kind(**job) for job in json.loads((scratch / "jobs.json").read_text())]
    results = {job.name: do(job, torch.distributed.get_world_size()) for job in jobs}
    (scratch / f"result-{torch.distributed.get_rank()}.json").write_text(json.dumps(results))
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
