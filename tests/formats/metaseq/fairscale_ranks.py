"""Real fairscale on the CPU: a wrapped model takes Adam steps, every rank saves what metaseq's trainer would.

    python fairscale_ranks.py FOLDER WORLD

Forward passes need CUDA streams, so gradients are set by hand; construction, sharding, Adam and the two
state dict calls are fairscale's own. The truth is the whole tensors, gathered by ``all_gather`` without
fairscale's help: shard after shard, cut to the unit's size, split in the order of ``named_parameters``.
"""

from __future__ import annotations

import logging
import sys
import warnings
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn


class Layer(nn.Module):
    def __init__(self, seed: int):
        super().__init__()
        self.fc1 = nn.Linear(5, 3)
        self.fc2 = nn.Linear(3, 5, bias=False)


class Model(nn.Module):
    """Tied weights in the root, whose unit comes before its layers; a unit of 5 elements; buffers."""

    def __init__(self) -> None:
        super().__init__()
        self.emb = nn.Embedding(7, 5)
        self.layers = nn.ModuleList([Layer(0), Layer(1)])
        self.tiny = nn.Linear(5, 1, bias=False)
        self.out = nn.Linear(5, 7, bias=False)
        self.out.weight = self.emb.weight
        self.register_buffer("version", torch.tensor([3.0]))
        self.register_buffer("hidden", torch.zeros(2), persistent=False)


def run(rank: int, folder: str, world: int) -> None:
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    from fairscale.nn import FullyShardedDataParallel

    dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=world)
    torch.manual_seed(0)
    model = Model()
    names = {id(m): [n for n, _ in m.named_parameters()] for m in [*model.layers, model.tiny]}
    paths = {id(m): p for p, m in model.named_modules() if id(m) in names}
    shapes = {n: p.shape for n, p in model.named_parameters()}
    units = [[n for n in shapes if not n.startswith(("layers.", "tiny."))]]
    units += [[f"{paths[id(m)]}.{n}" for n in names[id(m)]] for m in [*model.layers, model.tiny]]
    options = {"compute_device": torch.device("cpu"), "state_dict_device": torch.device("cpu")}
    for i in range(2):
        model.layers[i] = FullyShardedDataParallel(model.layers[i], **options)
    model.tiny = FullyShardedDataParallel(model.tiny, **options)
    top = FullyShardedDataParallel(model, **options)
    adam = torch.optim.Adam(top.parameters(), lr=0.1, weight_decay=0.1)
    for step in range(3):
        for i, p in enumerate(adam.param_groups[0]["params"]):
            size = p.numel()
            whole = torch.randn(world * size, generator=torch.Generator().manual_seed(10 * step + i))
            held = sum(shapes[n].numel() for n in units[i])
            whole[held:] = 0  # fairscale's reduce-scatter pads gradients with zeros
            p.grad = whole[rank * size : (rank + 1) * size]
        adam.step()
    state = {
        "cfg": {"common": {"model_parallel_size": 1}},
        "model": dict(top.local_state_dict()),
        "optimizer_history": [{"num_updates": 3}],
        "extra_state": {"rank": rank},
        "last_optimizer_state": adam.state_dict(),
        "shard_metadata": top.local_metadata_dict(),
    }
    torch.save(state, f"{folder}/run-shard{rank}.pt")
    truth: dict[str, dict[str, torch.Tensor]] = {"weights": {}, "exp_avg": {}, "exp_avg_sq": {}}
    for i, p in enumerate(adam.param_groups[0]["params"]):
        for what, mine in (("weights", p.data), *((s, adam.state[p][s]) for s in ("exp_avg", "exp_avg_sq"))):
            pieces = [torch.empty_like(mine) for _ in range(world)]
            dist.all_gather(pieces, mine.contiguous())
            flat = torch.cat(pieces)
            for name in units[i]:
                truth[what][name], flat = (
                    flat[: shapes[name].numel()].reshape(shapes[name]),
                    flat[shapes[name].numel() :],
                )
    if rank == 0:
        torch.save({k: {n: t.clone() for n, t in v.items()} for k, v in truth.items()}, f"{folder}/truth")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    folder, world = Path(sys.argv[1]), int(sys.argv[2])
    folder.mkdir(parents=True)
    torch.set_num_threads(1)
    mp.start_processes(run, (str(folder), world), nprocs=world, start_method="fork")
