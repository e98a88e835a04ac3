"""FSDP shards cut anew, merged, unflattened; there and back is the identity. Numbers in comments
are faults of metaseq's scripts: see ``test_faults``."""

from __future__ import annotations

import pytest
import torch
from formats.metaseq.samples import (
    FOREIGN,
    SLOTS,
    edit,
    load,
    make,
    same,
)
from reshard.cutting import (
    TINY,
    assert_equal,
    full_moments,
    moment_pieces,
    names,
    opened,
    paddings,
    pieces,
    shards_of,
    tiny,
)

from remap.formats import registry
from remap.reshard import reshard

CUTS = {  # (elements, shards) -> pieces of 1 up, with their padding; fairscale's _get_shard
    (10, 1): ([list(range(1, 11))], [0]),
    (10, 2): ([[1, 2, 3, 4, 5], [6, 7, 8, 9, 10]], [0, 0]),
    (10, 4): ([[1, 2, 3], [4, 5, 6], [7, 8, 9], [10, 0, 0]], [0, 0, 0, 2]),
    (10, 5): ([[1, 2], [3, 4], [5, 6], [7, 8], [9, 10]], [0] * 5),
    (9, 1): ([list(range(1, 10))], [0]),
    (9, 2): ([[1, 2, 3, 4, 5], [6, 7, 8, 9, 0]], [0, 1]),
    (9, 4): ([[1, 2, 3], [4, 5, 6], [7, 8, 9], [0, 0, 0]], [0, 0, 0, 3]),
    (9, 6): ([[1, 2], [3, 4], [5, 6], [7, 8], [9, 0], [0, 0]], [0, 0, 0, 0, 1, 2]),
    (5, 1): ([[1, 2, 3, 4, 5]], [0]),
    (5, 4): ([[1, 2], [3, 4], [5, 0], [0, 0]], [0, 0, 1, 2]),
    (3, 1): ([[1, 2, 3]], [0]),
    (3, 4): ([[1], [2], [3], [0]], [0, 0, 0, 1]),
}


@pytest.mark.parametrize(
    ("numel", "chain"),
    [
        (10, (4, 1)),  # RF 2: moments 12 long
        (10, (4, 2)),  # RF 3: moments begin at element 7 where weights begin at 6
        (10, (4, 5)),  # RF 4: AssertionError; CU: shards of 3
        (10, (4, 1, 4)),  # RF 5
        (9, (4, 1, 2)),  # RF 6
        (5, (1, 4)),  # RF 7, RC: AssertionError
        (3, (1, 4)),
        (9, (1, 6)),
        (5, (4, 1, 4)),  # RF 8: what fairscale itself wrote
        (5, (4, 1)),  # CU: cut by the last shard's padding alone
    ],
)
def test_every_shard_has_its_elements_and_its_padding(tmp_path, numel, chain):
    source = tiny(tmp_path / "0", numel, chain[0]).first
    for step, count in enumerate(chain[1:], 1):
        reshard(source, tmp_path / str(step), fsdp=count)
        source = tmp_path / str(step) / source.name
        states = shards_of(source.parent)
        assert (pieces(states), paddings(states)) == CUTS[numel, count]
        assert moment_pieces(states) == moment_pieces(states, "exp_avg_sq") == CUTS[numel, count][0]


@pytest.mark.parametrize("n", range(1, 9))
def test_there_and_back_is_where_we_were(tmp_path, n):
    """N -> M -> N: weights, moments, metadata, padding and all the rest, deep equal."""
    truth = make(tmp_path / "source", parts=1, shards=n, layers=1, tiny=5, ema=True)
    wanted = shards_of(truth.folder)
    for m in range(1, 9):
        reshard(truth.first, tmp_path / f"{m}", fsdp=m)
        there = shards_of(tmp_path / f"{m}")
        assert len(there) == m
        reshard(tmp_path / f"{m}" / truth.first.name, tmp_path / f"{m}-back", fsdp=n)
        back = shards_of(tmp_path / f"{m}-back")
        for i, (a, b) in enumerate(zip(wanted, back, strict=True)):
            for state in (a, b):
                state["extra_state"].pop("previous_training_time", None)  # per rank: fewer ranks hold fewer
            assert not same(a, b), (m, i)


def test_256_shards_and_back(tmp_path):
    truth = make(tmp_path / "source", parts=1, shards=1, layers=1, ema=True)
    wanted = shards_of(truth.folder)
    reshard(truth.first, tmp_path / "256", fsdp=256)
    assert len(list((tmp_path / "256").glob("*.pt"))) == 256
    reshard(tmp_path / "256" / truth.first.name, tmp_path / "back", fsdp=1)
    assert not same(wanted, shards_of(tmp_path / "back"))


CASES = {
    "default": {},
    "wrap-root": {"wrap": "root"},
    "wrap-decoder": {"wrap": "decoder"},
    "untied": {"untied": True},
    "gated": {"gated": True},
    "buffers": {"buffers": True},
    "fp16": {"dtype": torch.float16},
    "bf16": {"dtype": torch.bfloat16, "buffers": True},
    "tensor-step": {"step": torch.tensor(3.0)},
    "ema-foreign": {"ema": True, "foreign": True, "cfg": "dict"},
}


@pytest.mark.parametrize("case", CASES)
def test_merged_and_unflattened_is_the_truth_and_so_is_the_way_back(tmp_path, case):
    truth = make(tmp_path / "source", **CASES[case])
    reshard(truth.first, tmp_path / "whole", tp=1, unflatten=True)
    path = tmp_path / "whole" / "reshard-model_part-0.pt"
    assert_equal(opened(path), truth.weights)
    if not truth.case.foreign:
        state = load(path)
        assert_equal(state["model"], truth.weights)
        order = names(truth)
        moments = full_moments(state, order)
        for slot in SLOTS:
            assert_equal(moments[slot], truth.moments[slot])
        assert state["last_optimizer_state"]["state"][0]["step"] == truth.case.step
        assert state["last_optimizer_state"]["loss_scale"] == 4.0
    reshard(path, tmp_path / "back", tp=2, fsdp=3)
    for (j, i), source in truth.files.items():
        back = tmp_path / "back" / f"reshard-model_part-{j}-shard{i}.pt"
        if truth.case.foreign:
            assert registry.open_catalog(back).opaque == (f"{FOREIGN}.LockingArray",)
            continue
        for key in ("model", "last_optimizer_state", "shard_metadata", "cfg"):
            assert not same(load(source)[key], load(back)[key]), (j, i)


def test_ema_is_cut_like_the_model(tmp_path):
    # RF 22: shard 0's piece is kept as if it were whole.
    truth = make(tmp_path / "source", ema=True)
    reshard(truth.first, tmp_path / "u", unflatten=True)
    for j in range(2):
        ema = load(tmp_path / "u" / f"reshard-model_part-{j}.pt")["extra_state"]["ema"]
        assert_equal(ema, {k: v * 0.5 for k, v in truth.parts[j].items()})


def test_a_unit_without_parameters_comes_first_and_nothing_happens(tmp_path):
    # RF 9: UnboundLocalError.
    truth = make(tmp_path / "source", wrap="decoder", parts=1)
    reshard(truth.first, tmp_path / "out", unflatten=True)
    assert_equal(load(tmp_path / "out" / "reshard-model_part-0.pt")["model"], truth.weights)


def test_experts_are_held_whole_by_every_shard(tmp_path):
    # RF 13: copies are concatenated, [1, 2, 3, 2, 4, 6].
    truth = tiny(tmp_path / "source", 3, 2)
    for i, path in enumerate(truth.files.values()):

        def whole(state, i=i):
            unit = state["shard_metadata"]["param_metadata"][-1]
            unit["no_broadcast_optim_state"] = True
            unit["params"]["flat_param_0"]["padding"] = 0
            copy = torch.tensor([1.0, 2.0, 3.0]) * (i + 1)
            state["model"][TINY] = copy
            held = state["last_optimizer_state"]["state"]
            held[max(held)].update(exp_avg=copy.clone(), exp_avg_sq=copy.clone())

        edit(path, whole)
    reshard(truth.first, tmp_path / "1", fsdp=1)
    assert pieces(shards_of(tmp_path / "1")) == moment_pieces(shards_of(tmp_path / "1")) == [[1, 2, 3]]
    reshard(truth.first, tmp_path / "4", fsdp=4)
    assert pieces(shards_of(tmp_path / "4")) == [[1, 2, 3], [1, 2, 3], [2, 4, 6], [2, 4, 6]]


def test_weights_alone_are_flattened_by_the_layout_in_the_model_s_order(tmp_path):
    truth = make(tmp_path / "source", parts=1, shards=4, layers=11)
    model = dict(sorted(truth.weights.items(), reverse=True))
    path = tmp_path / "reshard.pt"
    torch.save({"model": model, "cfg": None, "optimizer_history": [], "extra_state": {}}, path)
    reshard(path, tmp_path / "out", fsdp=4)
    for i in range(4):
        made = load(tmp_path / "out" / f"reshard-shard{i}.pt")
        wanted = load(truth.files[0, i])
        assert_equal(made["model"], wanted["model"])
        for a, b in zip(
            made["shard_metadata"]["param_metadata"], wanted["shard_metadata"]["param_metadata"], strict=True
        ):
            assert (a["fsdp_path"], a["params"]) == (b["fsdp_path"], b["params"])


def test_a_tensor_that_metadata_does_not_name_is_kept_when_the_rest_is_flattened(tmp_path):
    # RC: dropped; and the optimizer's state of all copied into every shard.
    truth = make(tmp_path / "source", parts=1, shards=1)
    reshard(truth.first, tmp_path / "u", unflatten=True)
    edit(
        tmp_path / "u" / "reshard-model_part-0.pt",
        lambda s: s["model"].update({"decoder.odd": torch.ones(2)}),
    )
    reshard(tmp_path / "u", tmp_path / "out", fsdp=2)
    states = shards_of(tmp_path / "out", "reshard-model_part-0-shard{}.pt")
    assert [s["model"]["decoder.odd"].tolist() for s in states] == [[1, 1]] * 2
    for state in states:
        held = state["last_optimizer_state"]["state"][0]
        assert held["exp_avg"].shape == state["model"]["flat_param_0"].shape
