"""Small metaseq checkpoints of every kind, with the tensors that they were made from.

The truth comes first: each tensor of the whole model is drawn by its name. Model parallelism slices it, FSDP
flattens, cuts and pads the slices; nothing of remap is used. The structure is that of metaseq's
``trainer.py`` (``state_dict``) and fairscale's ``local_state_dict`` and ``local_metadata_dict``; that real
fairscale writes the same, ``test_fairscale.py`` shows.
"""

from __future__ import annotations

import argparse
import sys
import types
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

EMBED, OUTPUT = "decoder.embed_tokens.weight", "decoder.output_projection.weight"
SLOTS = ("exp_avg", "exp_avg_sq")


@dataclass
class Case:
    """What to make; the defaults have padding everywhere."""

    parts: int = 2
    shards: int = 3
    layers: int = 2
    dim: int = 4
    ffn: int = 8
    vocab: int = 16
    wrap: str = "layers"  # root, layers, decoder (its root is empty)
    tiny: int = 0  # a unit of its own, so long
    gated: bool = False
    untied: bool = False
    buffers: bool = False  # an int64 buffer, and one that no file holds
    dtype: torch.dtype = torch.float32
    step: object = 3
    ema: bool = False
    foreign: bool = False
    cfg: str = "namespace"
    optimizer: bool = True
    name: str = "checkpoint_last"
    part_in_name: bool = True
    old_metadata: bool = False  # fairscale 0.3.7


@dataclass
class Truth:
    """What the files were made from."""

    case: Case
    folder: Path
    weights: dict[str, torch.Tensor]
    parts: list[dict[str, torch.Tensor]]
    moments: dict[str, dict[str, torch.Tensor]]
    part_moments: list[dict[str, dict[str, torch.Tensor]]]
    files: dict[tuple[int, int], Path] = field(default_factory=dict)

    @property
    def first(self) -> Path:
        return self.files[0, 0]


def draw(name: str, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    generator = torch.Generator().manual_seed(zlib.crc32(name.encode()))
    return torch.randn(shape, generator=generator).to(dtype)


def shapes(c: Case) -> dict[str, tuple[int, ...]]:
    """Shapes of the whole model's parameters, ties once."""
    d, f = c.dim, c.ffn
    out = {EMBED: (c.vocab, d), "decoder.embed_positions.weight": (7, d)}
    for i in range(c.layers):
        p = f"decoder.layers.{i}."
        out |= {p + "self_attn.qkv_proj.weight": (3 * d, d), p + "self_attn.qkv_proj.bias": (3 * d,)}
        out |= {p + "self_attn.out_proj.weight": (d, d), p + "self_attn.out_proj.bias": (d,)}
        out |= {p + "self_attn_layer_norm.weight": (d,), p + "self_attn_layer_norm.bias": (d,)}
        out |= {p + "fc1.weight": (f, d), p + "fc1.bias": (f,)}
        if c.gated:
            out |= {p + "activation_fn.gate.weight": (f, d), p + "activation_fn.gate.bias": (f,)}
        out |= {p + "fc2.weight": (d, f), p + "fc2.bias": (d,)}
        out |= {p + "final_layer_norm.weight": (d,), p + "final_layer_norm.bias": (d,)}
    out |= {"decoder.layer_norm.weight": (d,), "decoder.layer_norm.bias": (d,)}
    if c.tiny:
        out["decoder.tiny.weight"] = (c.tiny,)
    if c.untied:
        out[OUTPUT] = (c.vocab, d)
    return out


def split(name: str, value: torch.Tensor, parts: int, j: int, untied: bool) -> torch.Tensor:
    """The slice that part ``j`` has. Source: metaseq ``modules/`` (ColumnParallelLinear, ...)."""
    if "qkv_proj" in name:  # three blocks K, V, Q, each divided
        return torch.cat([b.chunk(parts)[j] for b in value.chunk(3)])
    if name.endswith((".fc2.weight", ".out_proj.weight")):
        return value.chunk(parts, 1)[j].contiguous()
    if name == EMBED or ".fc1." in name or ".gate." in name or (name == OUTPUT and not untied):
        return value.chunk(parts)[j]
    return value


def units(c: Case, names: list[str]) -> dict[str, list[str]]:
    """Path of every FSDP unit -> its parameters, relative; the root first, as named_modules() goes."""
    wrapped = [] if c.wrap == "root" else [f"decoder.layers.{i}" for i in range(c.layers)]
    wrapped += ["decoder.tiny"] * bool(c.tiny)
    order = ["", *(["decoder"] if c.wrap == "decoder" else []), *wrapped]
    out: dict[str, list[str]] = {path: [] for path in order}
    for name in names:
        path = max((p for p in order if not p or name.startswith(f"{p}.")), key=len)
        out[path].append(name[len(path) + 1 if path else 0 :])
    return out


def cut(flat: torch.Tensor, world: int, rank: int) -> tuple[torch.Tensor, int]:
    """fairscale's ``_get_shard``: (shard, padding)."""
    size = -(-flat.numel() // world)
    piece = flat[rank * size : (rank + 1) * size]
    pad = size - piece.numel()
    return torch.cat([piece, piece.new_zeros(pad)]), pad


def build(c: Case) -> tuple[dict, list[dict], dict, list[dict]]:
    """(weights, weights of parts, moments, moments of parts), without buffers."""
    whole = {n: draw(n, s, c.dtype) for n, s in shapes(c).items()}
    moments = {
        m: {n: draw(f"{n}::{m}", s, torch.float32).square() for n, s in shapes(c).items()} for m in SLOTS
    }
    cutter = lambda d, j: {n: split(n, t, c.parts, j, c.untied).clone() for n, t in d.items()}  # noqa: E731
    return (
        whole,
        [cutter(whole, j) for j in range(c.parts)],
        moments,
        [{m: cutter(d, j) for m, d in moments.items()} for j in range(c.parts)],
    )


def make(folder: Path, **arguments: Any) -> Truth:
    """Write ``{name}-model_part-{j}-shard{i}.pt`` into ``folder``."""
    c = Case(**arguments)
    folder.mkdir(parents=True, exist_ok=True)
    whole, parts, moments, part_moments = build(c)
    truth = Truth(c, folder, whole, parts, moments, part_moments)
    for j in range(c.parts):
        for i in range(c.shards):
            part = f"-model_part-{j}" if c.part_in_name else ""
            path = truth.files[j, i] = folder / f"{c.name}{part}-shard{i}.pt"
            torch.save(shard(c, parts[j], part_moments[j], j, i), path)
    for tensors in (whole, *parts):
        if not c.untied:
            tensors[OUTPUT] = tensors[EMBED]
        tensors |= buffers(c)
    return truth


def make_unflattened(folder: Path, **arguments: Any) -> Truth:
    """Write ``reshard-model_part-{j}.pt``: merged parts, as metaseq's reshard_fsdp.py leaves them."""
    c = Case(**{"shards": 1, **arguments})
    truth = make(folder / "flat", **{**arguments, "shards": 1})
    for j, tensors in enumerate(truth.parts):
        state = load(truth.files[j, 0])
        state["model"] = {n: t.clone() for n, t in tensors.items()}
        del state["last_optimizer_state"]
        path = truth.files[j, 0] = folder / f"reshard-model_part-{j}.pt"
        torch.save(state, path)
    truth.case, truth.folder = c, folder
    return truth


def buffers(c: Case) -> dict[str, torch.Tensor]:
    out = {"decoder.version": torch.tensor([3.0], dtype=c.dtype)}
    return out | ({"decoder.steps_seen": torch.tensor([100001])} if c.buffers else {})


def shard(c: Case, weights: dict, moments: dict, j: int, i: int) -> dict[str, Any]:
    """Everything that the file of part ``j``, shard ``i`` holds."""
    model: dict[str, torch.Tensor] = {}
    metadata = []
    state = {}
    flat_name = "flat_param" if c.old_metadata else "flat_param_0"
    for path, names in units(c, list(weights)).items():
        full = [f"{path}.{n}" if path else n for n in names]
        params = {}
        if names:
            piece, pad = cut(torch.cat([weights[n].reshape(-1) for n in full]), c.shards, i)
            model[f"{path}.{flat_name}" if path else flat_name] = piece
            slots = {
                m: cut(torch.cat([d[n].reshape(-1) for n in full]), c.shards, i)[0]
                for m, d in moments.items()
            }
            step = c.step.clone() if isinstance(c.step, torch.Tensor) else c.step
            state[len(state)] = {"step": step, **slots}
            params["flat_param_0"] = {
                "names": names,
                "shapes": [tuple(weights[n].shape) for n in full],
                "numels": [weights[n].numel() for n in full],
                "padding": pad,
            }
        unit = {
            "fsdp_path": path,
            "params": params,
            "no_broadcast_optim_state": False,
            "shared_param_info": [],
        }
        if EMBED[len(path) + 1 if path else 0 :] in names and not c.untied:
            drop = len(path) + 1 if path else 0
            unit["shared_param_info"] = [(EMBED[drop:], OUTPUT[drop:])]
        metadata.append(old_form(unit) if c.old_metadata else unit)
        if path == ("decoder" if c.wrap == "decoder" else ""):
            model |= buffers(c)
    listed = [*buffers(c), *(["decoder.future_mask"] if c.buffers else [])]
    return around(c, j, i, model, state, {"param_metadata": metadata, "buffer_names": listed})


def old_form(unit: dict[str, Any]) -> dict[str, Any]:
    """As fairscale 0.3.7 wrote it."""
    p = unit["params"].get("flat_param_0", {"names": [], "shapes": [], "numels": [], "padding": 0})
    return {
        "fsdp_path": unit["fsdp_path"],
        "is_flat": True,
        "num_padded": [p["padding"]] if p["names"] else [],
        "param_names": p["names"],
        "param_shapes": p["shapes"],
        "param_numels": p["numels"],
        "no_broadcast_optim_state": False,
    }


def around(c: Case, j: int, i: int, model: dict, state: dict, metadata: dict) -> dict[str, Any]:
    node = argparse.Namespace if c.cfg == "namespace" else dict
    shared = {"model_parallel_size": c.parts, "use_sharded_state": True, "data": "/path"}
    extra: dict[str, Any] = {
        "metrics": {"default": [(790, "wall", "StopwatchMeter", {"sum": 1.5})]},
        "previous_training_time": 12.5 + i,
        "train_iterator": {
            "epoch": 1,
            "tokenization_cache": foreign() if c.foreign and i == j == 0 else None,
        },
        "rng_tracker_states": {"model-parallel-rng": torch.arange(16, dtype=torch.uint8) + j},
    }
    if c.ema:
        extra["ema"] = {k: v * 0.5 if v.is_floating_point() else v for k, v in model.items()}
    out = {
        "cfg": {
            "common": {"model_parallel_size": c.parts, "seed": 1},
            "distributed_training": {
                "distributed_world_size": c.parts * c.shards,
                "distributed_rank": i * c.parts + j,
                "use_sharded_state": True,
            },
            "checkpoint": {
                "checkpoint_suffix": f"-model_part-{j}" if c.part_in_name else "",
                "checkpoint_shard_count": 1,
            },
            "model": node(**shared, share_decoder_input_output_embed=not c.untied),
            "task": node(**shared),
        },
        "model": model,
        "criterion": None,
        "optimizer_history": [{"optimizer_name": "MetaseqAdam", "num_updates": 3}],
        "task_state": {},
        "extra_state": extra,
        "last_optimizer_state": {
            "state": state,
            "param_groups": [{"lr": 1e-3, "params": list(range(len(state)))}],
            "loss_scale": 4.0,
        },
        "shard_metadata": metadata,
    }
    if not c.optimizer:
        del out["last_optimizer_state"]
    return out


FOREIGN = "metaseq.data.document_to_sequence"


def foreign() -> object:
    """An instance of a class that can't be imported where the file is read."""
    packages = FOREIGN.split(".")
    for n in range(1, len(packages) + 1):
        sys.modules.setdefault(".".join(packages[:n]), types.ModuleType(".".join(packages[:n])))
    cls = type("LockingArray", (), {"__module__": FOREIGN, "__getstate__": lambda self: (b"\x01" * 8, 1)})
    sys.modules[FOREIGN].LockingArray = cls
    return cls()


def load(path: Path) -> dict[str, Any]:
    """What torch makes of a file."""
    return torch.load(path, weights_only=False)


def edit(path: Path, change: Any) -> None:
    """Load a file, change its dict in place, save it."""
    state = load(path)
    change(state)
    torch.save(state, path)


def same(a: Any, b: Any, path: str = "") -> list[str]:
    """Where two loaded files differ: types, keys and their order, dtypes, values."""
    if type(a) is not type(b):
        return [f"{path}: {type(a).__name__} / {type(b).__name__}"]
    if isinstance(a, torch.Tensor):
        return [] if a.dtype == b.dtype and torch.equal(a, b) else [f"{path}: {a} / {b}"]
    if isinstance(a, dict):
        if list(a) != list(b):
            return [f"{path}: {list(a)} / {list(b)}"]
        return [e for k in a for e in same(a[k], b[k], f"{path}.{k}")]
    if isinstance(a, (list, tuple)):
        return (
            [e for i, (x, y) in enumerate(zip(a, b, strict=True)) for e in same(x, y, f"{path}[{i}]")]
            if len(a) == len(b)
            else [f"{path}: length"]
        )
    if hasattr(a, "__dict__"):
        return same(vars(a), vars(b), path)
    return [] if a == b else [f"{path}: {a!r} / {b!r}"]
