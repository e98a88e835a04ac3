"""Checkpoints with numbers that can be read off, and what is in files that were cut."""

from __future__ import annotations

import itertools

import torch
from formats.metaseq.samples import (
    SLOTS,
    Truth,
    edit,
    load,
    make,
)

from remap.expr import Take
from remap.expr.blocks import evaluate
from remap.formats import registry

TINY = "decoder.tiny.flat_param_0"


def tiny(folder, numel: int, shards: int, **arguments) -> Truth:
    """One part with a unit of ``numel`` elements, which are 1 up; its moments are the same numbers."""
    truth = make(folder, parts=1, shards=shards, tiny=numel, **arguments)
    numbers = torch.arange(1.0, numel + 1)
    size = -(-numel // shards)
    for i in range(shards):
        piece = torch.zeros(size)
        held = numbers[i * size : (i + 1) * size]
        piece[: len(held)] = held

        def change(state, piece=piece):
            state["model"][TINY] = piece
            if "last_optimizer_state" in state:
                held = state["last_optimizer_state"]["state"]
                held[max(held)].update(exp_avg=piece.clone(), exp_avg_sq=piece.clone())

        edit(truth.files[0, i], change)
    return truth


def shards_of(folder, stem="checkpoint_last-model_part-0-shard{}.pt") -> list[dict]:
    paths = [folder / stem.format(i) for i in range(1000)]
    return [load(p) for p in itertools.takewhile(lambda p: p.exists(), paths)]


def pieces(states, key=TINY) -> list[list[float]]:
    return [s["model"][key].tolist() for s in states]


def moment_pieces(states, slot="exp_avg") -> list[list[float]]:
    held = [s["last_optimizer_state"]["state"] for s in states]
    return [h[max(h)][slot].tolist() for h in held]


def paddings(states) -> list[int]:
    return [s["shard_metadata"]["param_metadata"][-1]["params"]["flat_param_0"]["padding"] for s in states]


def opened(path) -> dict[str, torch.Tensor]:
    return {k: evaluate(Take(e)) for k, e in registry.open_catalog(path).entries.items()}


def assert_equal(got, wanted):
    assert got.keys() == wanted.keys()
    for key, value in wanted.items():
        assert got[key].dtype == value.dtype, key
        assert torch.equal(got[key], value), key


def names(truth: Truth) -> list[str]:
    """Parameters in the order of the metadata."""
    units = load(truth.first)["shard_metadata"]["param_metadata"]
    return [
        f"{u['fsdp_path']}.{n}" if u["fsdp_path"] else n
        for u in units
        for p in u["params"].values()
        for n in p["names"]
    ]


def full_moments(state, order) -> dict[str, dict[str, torch.Tensor]]:
    held = state["last_optimizer_state"]["state"]
    return {slot: {n: held[i][slot] for i, n in enumerate(order)} for slot in SLOTS}
