"""Real torch on several ranks, in one launch: ``ranks.py write FOLDER`` and ``ranks.py load FOLDER...``.

``write``: four ranks save one small model in every layout that torch has. ``load``: two ranks, then
four, load DCP folders into FSDP2 and compare with the truth; a line of JSON says what came out.
torch is imported once, the ranks are forked from there.
"""

from __future__ import annotations

import json
import logging
import sys
import tempfile
import traceback
import warnings
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing as mp
from torch import nn
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageWriter
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict, set_optimizer_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, StateDictType, fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

RANKS = 4
STEP = 3
CFG = {"lr": 0.1, "names": ["a", 1], "empty": None}
MOMENTS = ("exp_avg", "exp_avg_sq")


def draw(name: str, shape: tuple[int, ...]) -> torch.Tensor:
    """The value of a tensor, from its name."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(zlib.crc32(name.encode())))


class Net(nn.Module):
    """Rows that do not divide (7, 5, 2, 1), tied weights, buffers of int64 and of no dimension."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(7, 3)
        self.layers = nn.ModuleList([nn.Linear(3, 10), nn.Linear(10, 3)])
        self.head = nn.Linear(3, 2)
        self.gain = nn.Parameter(torch.ones(1))
        self.output = nn.Linear(3, 7, bias=False)
        self.output.weight = self.embed.weight
        self.register_buffer("seen", torch.tensor([41, 42, 43]))
        self.register_buffer("scale", torch.tensor(2.5))
        with torch.no_grad():
            for name, p in self.named_parameters():
                p.copy_(draw(name, tuple(p.shape)))


def weights() -> dict[str, torch.Tensor]:
    """The truth: every tensor of the model, whole."""
    return {k: v.detach().clone() for k, v in Net().state_dict().items()}


def moments() -> dict[str, torch.Tensor]:
    """The truth: Adam's state, by the flat name that DCP gives it."""
    found = {}
    for name, p in Net().named_parameters():
        found[f"optim.state.{name}.step"] = torch.tensor(float(STEP))
        found[f"optim.state.{name}.exp_avg"] = draw(f"{name}:1", tuple(p.shape)) * 0.01
        found[f"optim.state.{name}.exp_avg_sq"] = draw(f"{name}:2", tuple(p.shape)).square()
    return found


def adam(model: nn.Module) -> torch.optim.Optimizer:
    """Adam that has the truth for its state."""
    names = [n for n, _ in Net().named_parameters()]
    found = torch.optim.Adam(model.parameters(), lr=0.1)
    group = dict(torch.optim.Adam(Net().parameters(), lr=0.1).state_dict()["param_groups"][0])
    truth = moments()
    state = {n: {s: truth[f"optim.state.{n}.{s}"] for s in ("step", *MOMENTS)} for n in names}
    full = {"state": state, "param_groups": [{**group, "params": names}]}
    set_optimizer_state_dict(model, found, full, options=StateDictOptions(full_state_dict=True))
    return found


def sharded(mesh: Any) -> nn.Module:
    """FSDP2, with a nested unit."""
    net = Net()
    fully_shard(net.layers[0], mesh=mesh)
    return fully_shard(net, mesh=mesh)


def fsdp1(use_orig_params: bool = False) -> nn.Module:
    """FSDP1, with a nested unit."""
    net = Net()
    options: dict[str, Any] = {"device_id": torch.device("cpu"), "use_orig_params": use_orig_params}
    net.layers[0] = FullyShardedDataParallel(net.layers[0], **options)
    return FullyShardedDataParallel(net, **options)


def write(rank: int, out: Path) -> None:
    """One rank's part in saving every layout below ``out``."""

    def keep(kind: str, value: dict[str, Any]) -> None:
        (out / kind).mkdir(parents=True, exist_ok=True)
        torch.save(value, out / kind / f"rank{rank}.pt")

    mesh = init_device_mesh("cpu", (RANKS,))
    model = sharded(mesh)
    state, optim = get_state_dict(model, adam(model))
    dcp.save({"model": state, "optim": optim, "step": STEP, "cfg": CFG}, checkpoint_id=out / "fsdp2")
    dcp.save({"model": state, "step": STEP}, checkpoint_id=out / "each-rank", use_collectives=False)
    keep("dtensor", dict(model.state_dict()))
    keep("dtensor-optim", {"model": dict(model.state_dict()), "optim": optim, "step": STEP})
    floats = {k: v for k, v in model.state_dict().items() if k != "output.weight"}
    dcp.save(floats, storage_writer=HuggingFaceStorageWriter(str(out / "hf"), save_distributed=True))

    grid = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    net = Net()
    plan = {"layers.0": ColwiseParallel(), "layers.1": RowwiseParallel()}
    parallelize_module(net, grid["tp"], plan)
    both = fully_shard(net, mesh=grid["dp"])
    dcp.save({"model": both.state_dict()}, checkpoint_id=out / "grid")
    keep("grid-dtensor", {"model": dict(both.state_dict()), "epoch": 7})

    old = fsdp1()
    with FullyShardedDataParallel.state_dict_type(old, StateDictType.SHARDED_STATE_DICT):
        optim = FullyShardedDataParallel.optim_state_dict(old, adam(old))
        dcp.save(
            {"model": old.state_dict(), "optim": optim, "step": STEP, "cfg": CFG}, checkpoint_id=out / "fsdp1"
        )
        keep("sharded", dict(old.state_dict()))
        keep("sharded-optim", {"model": dict(old.state_dict()), "optim": optim, "step": STEP})
    with FullyShardedDataParallel.state_dict_type(old, StateDictType.LOCAL_STATE_DICT):
        keep("local", dict(old.state_dict()))
    with FullyShardedDataParallel.state_dict_type(old, StateDictType.FULL_STATE_DICT):
        full = dict(old.state_dict())
    if rank == 0:
        torch.save(full, out / "full.pt")
    orig = fsdp1(use_orig_params=True)
    with FullyShardedDataParallel.state_dict_type(orig, StateDictType.LOCAL_STATE_DICT):
        keep("local-orig", dict(orig.state_dict()))


def whole(value: Any) -> torch.Tensor:
    """A tensor, gathered where it is cut."""
    return value.full_tensor() if hasattr(value, "full_tensor") else value


def load(rank: int, folders: list[Path]) -> None:
    """Load each folder into a model that has other values; rank 0 prints what differs from the truth."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for folder in folders:
        model = sharded(mesh)
        with torch.no_grad():
            for tensor in [*model.parameters(), *model.buffers()]:
                tensor.zero_()
        optimizer = torch.optim.Adam(model.parameters(), lr=0.5)
        for p in model.parameters():
            p.grad = torch.zeros_like(p)
        optimizer.step()
        state, optim = get_state_dict(model, optimizer)
        if folder.name.startswith("model"):
            dcp.load(state, checkpoint_id=folder)
            found: dict[str, Any] = dict(state)
            wanted = weights()
        else:
            dcp.load({"model": state, "optim": optim}, checkpoint_id=folder)
            flat = {
                f"optim.state.{n}.{s}": v for n, slots in optim["state"].items() for s, v in slots.items()
            }
            found, wanted = {**state, **flat}, {**weights(), **moments()}
        # Every rank takes part in gathering, in one order.
        wrong = [k for k in sorted(wanted) if not torch.equal(whole(found[k]), wanted[k])]
        if rank == 0:
            print(
                json.dumps({"ranks": dist.get_world_size(), "folder": folder.name, "wrong": wrong}),
                flush=True,
            )


def launch(ranks: int, work: Callable[[int], None]) -> None:
    """Run ``work`` on forked ranks; stops with an error where one of them does."""

    def main(rank: int, rendezvous: str) -> None:
        warnings.filterwarnings("ignore")
        logging.disable(logging.WARNING)
        torch.set_num_threads(1)
        try:
            dist.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=ranks)
            work(rank)
            dist.barrier()
            dist.destroy_process_group()
        except BaseException:
            traceback.print_exc()
            raise SystemExit(1) from None

    fork = mp.get_context("fork")
    with tempfile.TemporaryDirectory() as folder:
        processes = [fork.Process(target=main, args=(r, f"{folder}/rendezvous")) for r in range(ranks)]
        for process in processes:
            process.start()
        for process in processes:
            process.join()
    if any(p.exitcode for p in processes):
        raise SystemExit(f"ranks ended with {[p.exitcode for p in processes]}")


if __name__ == "__main__":
    paths = [Path(p).resolve() for p in sys.argv[2:]]
    if sys.argv[1] == "write":
        launch(RANKS, lambda rank: write(rank, paths[0]))
    else:
        for ranks in (2, 4):
            launch(ranks, lambda rank: load(rank, paths))
