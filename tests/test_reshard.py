"""Resharding: other shards, other parts, unflattened; the numbers in comments are faults of metaseq's
reshard_fsdp.py (RF) and reshard_mp.py (RM), found by running them."""

from __future__ import annotations

import argparse
import itertools

import pytest
import torch
from formats.metaseq.samples import (
    EMBED,
    FOREIGN,
    OUTPUT,
    SLOTS,
    Truth,
    edit,
    load,
    make,
    make_unflattened,
    same,
)

from remap.errors import Damaged, DestinationError, InputError, UsageError
from remap.expr import Take
from remap.expr.blocks import evaluate
from remap.formats import registry
from remap.formats.torch import file as torch_file
from remap.pickles.graph import lookup, mapping_pairs, plain
from remap.reshard import reshard

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


def test_moments_are_divided_like_their_parameter(tmp_path):
    # RM 9: dropped.
    truth = make(tmp_path / "source", parts=4, shards=2, dim=8)
    reshard(truth.first, tmp_path / "2", tp=2, unflatten=True)
    reshard(truth.first, tmp_path / "8", tp=8)
    reshard(tmp_path / "8", tmp_path / "4", tp=4, unflatten=True)
    for j in range(4):
        state = load(tmp_path / "4" / f"reshard-model_part-{j}.pt")
        moments = full_moments(state, names(truth))
        for slot in SLOTS:
            assert_equal(moments[slot], truth.part_moments[j][slot])
        assert_equal(state["model"], truth.parts[j])


def test_a_unit_without_parameters_comes_first_and_nothing_happens(tmp_path):
    # RF 9: UnboundLocalError.
    truth = make(tmp_path / "source", wrap="decoder", parts=1)
    reshard(truth.first, tmp_path / "out", unflatten=True)
    assert_equal(load(tmp_path / "out" / "reshard-model_part-0.pt")["model"], truth.weights)


def test_dtype_casts_weights_and_leaves_integers_and_moments(tmp_path):
    # RF 11, 12: AttributeError; int64 100001 becomes fp16 inf.
    truth = make(tmp_path / "source", buffers=True)
    reshard(truth.first, tmp_path / "out", fsdp=2, dtype="fp16")
    state = load(tmp_path / "out" / truth.first.name)
    assert state["model"]["flat_param_0"].dtype == torch.float16
    assert state["model"]["decoder.version"].dtype == torch.float16
    assert state["model"]["decoder.steps_seen"].tolist() == [100001]
    assert state["last_optimizer_state"]["state"][0]["exp_avg"].dtype == torch.float32
    assert state["last_optimizer_state"]["state"][0]["step"] == 3
    assert_equal(
        opened(tmp_path / "out"),
        {k: v.half() if v.is_floating_point() else v for k, v in truth.weights.items()},
    )


def test_moments_are_cast_where_that_is_asked(tmp_path):
    truth = make(tmp_path / "source", step=torch.tensor(3.0))
    reshard(truth.first, tmp_path / "out", fsdp=2, optimizer_dtype="bf16")
    held = load(tmp_path / "out" / truth.first.name)["last_optimizer_state"]["state"][0]
    assert (held["exp_avg"].dtype, held["step"].dtype) == (torch.bfloat16, torch.float32)


def test_no_optimizer_leaves_it_behind_and_says_so(tmp_path):
    truth = make(tmp_path / "source")
    receipt = reshard(truth.first, tmp_path / "out", fsdp=1, optimizer=False)
    assert "last_optimizer_state" not in load(tmp_path / "out" / truth.first.name)
    assert receipt.left_behind == ["last_optimizer_state"]


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


def test_a_placeholder_means_that_shard_0_has_the_state(tmp_path):
    # RF 14: TypeError.
    truth = make(tmp_path / "source", parts=1, shards=3)
    reshard(truth.first, tmp_path / "u", unflatten=True)
    gathered = load(tmp_path / "u" / "reshard-model_part-0.pt")["last_optimizer_state"]
    for i, path in enumerate(truth.files.values()):
        edit(path, lambda s, i=i: s.update(last_optimizer_state=-1 if i else gathered))
    reshard(truth.first, tmp_path / "2", fsdp=2)
    states = shards_of(tmp_path / "2")
    assert not same(states[0]["last_optimizer_state"], gathered)
    assert states[1]["last_optimizer_state"] == -1


def test_a_shard_without_optimizer_is_named(tmp_path):
    # RF 15: KeyError.
    truth = make(tmp_path / "source")
    edit(truth.files[1, 2], lambda s: s.pop("last_optimizer_state"))
    with pytest.raises(Damaged, match="not every shard has last_optimizer_state") as caught:
        reshard(truth.first, tmp_path / "out", fsdp=1)
    assert truth.files[1, 2].name in caught.value.problems[0]
    reshard(truth.first, tmp_path / "out", fsdp=1, optimizer=False)


def test_what_is_not_one_element_for_an_element_is_taken_once(tmp_path):
    # RF 24: concatenated N times.
    truth = tiny(tmp_path / "source", 5, 5)  # shards of one element, as long as the step

    for path in truth.files.values():

        def add(state):
            for held in state["last_optimizer_state"]["state"].values():
                held.update(qmap=torch.arange(256.0), step=torch.tensor([3.0]))

        edit(path, add)
    reshard(truth.first, tmp_path / "1", fsdp=1)
    held = shards_of(tmp_path / "1")[0]["last_optimizer_state"]["state"]
    assert held[max(held)]["step"].tolist() == [3.0]
    assert held[max(held)]["qmap"].tolist() == list(range(256))
    assert held[max(held)]["exp_avg"].tolist() == [1, 2, 3, 4, 5]


def test_what_differs_between_shards_and_can_t_be_cut_is_refused(tmp_path):
    truth = tiny(tmp_path / "source", 10, 2)
    for i, path in enumerate(truth.files.values()):
        edit(path, lambda s, i=i: s["last_optimizer_state"]["state"][0].update(absmax=torch.ones(3) * i))
    with pytest.raises(InputError, match="not one element for an element differ") as caught:
        reshard(truth.first, tmp_path / "out", fsdp=1)
    assert caught.value.problems == ("absmax of 0",)
    reshard(truth.first, tmp_path / "same", fsdp=2, dtype="fp16")  # each shard keeps its own
    assert shards_of(tmp_path / "same")[1]["last_optimizer_state"]["state"][0]["absmax"].tolist() == [1.0] * 3


def test_moments_that_are_not_cut_as_the_weights_are_refused(tmp_path):
    # What RF 3 leaves: model 5 + 5, moments 6 + 6.
    truth = tiny(tmp_path / "source", 10, 2)
    for path in truth.files.values():

        def longer(state):
            held = state["last_optimizer_state"]["state"]
            held[max(held)].update(exp_avg=torch.zeros(6), exp_avg_sq=torch.zeros(6))

        edit(path, longer)
    with pytest.raises(InputError, match="not cut as the weights are"):
        reshard(truth.first, tmp_path / "out", fsdp=1)


def test_a_state_that_one_shard_lacks_is_named(tmp_path):
    # RF 25: dropped silently.
    truth = make(tmp_path / "source", parts=1)
    edit(truth.first, lambda s: s["last_optimizer_state"]["state"].pop(1))
    with pytest.raises(InputError, match="of different parameters") as caught:
        reshard(truth.first, tmp_path / "out", fsdp=1)
    assert caught.value.problems[0] == f"{truth.first.name}: lacks exp_avg of 1"


def test_a_unit_that_got_no_gradient_keeps_its_index(tmp_path):
    truth = make(tmp_path / "source", parts=1)
    for path in truth.files.values():
        edit(path, lambda s: s["last_optimizer_state"]["state"].pop(1))
    reshard(truth.first, tmp_path / "u", unflatten=True)
    reshard(tmp_path / "u", tmp_path / "back", fsdp=3)
    for i in range(3):
        back = load(tmp_path / "back" / f"reshard-model_part-0-shard{i}.pt")
        wanted = load(truth.files[0, i])["last_optimizer_state"]
        assert not same(back["last_optimizer_state"], wanted)


def test_frozen_units_have_no_index(tmp_path):
    truth = make(tmp_path / "source", parts=1, tiny=5)

    def freeze(state):  # the root's: its length tells which one it is not
        held = state["last_optimizer_state"]["state"]
        state["last_optimizer_state"]["state"] = {i: held[i + 1] for i in range(3)}
        state["last_optimizer_state"]["param_groups"][0]["params"] = [0, 1, 2]

    for path in truth.files.values():
        edit(path, freeze)
    reshard(truth.first, tmp_path / "u", unflatten=True)
    state = load(tmp_path / "u" / "reshard-model_part-0.pt")["last_optimizer_state"]
    order = names(truth)
    assert {order[i] for i in state["state"]} == {n for n in order if ".layers." in n or ".tiny." in n}
    reshard(tmp_path / "u", tmp_path / "back", fsdp=3)
    for i in range(3):
        back = load(tmp_path / "back" / f"reshard-model_part-0-shard{i}.pt")["last_optimizer_state"]
        assert not same(back, load(truth.files[0, i])["last_optimizer_state"])


def test_frozen_units_that_lengths_don_t_tell_are_refused(tmp_path):
    truth = make(tmp_path / "source", parts=1)  # two layers of one length

    def freeze(state):
        state["last_optimizer_state"]["state"].pop(2)
        state["last_optimizer_state"]["param_groups"][0]["params"] = [0, 1]

    for path in truth.files.values():
        edit(path, freeze)
    with pytest.raises(InputError, match="their lengths do not tell"):
        reshard(truth.first, tmp_path / "out", fsdp=1)


def test_flat_moments_beside_unflattened_weights_are_refused(tmp_path):
    # RF 23: what it leaves when it unflattens and keeps the optimizer.
    truth = make(tmp_path / "source", parts=1)
    reshard(truth.first, tmp_path / "flat", fsdp=1)
    reshard(truth.first, tmp_path / "u", unflatten=True)
    path = tmp_path / "u" / "reshard-model_part-0.pt"
    flat = load(tmp_path / "flat" / truth.first.name)["last_optimizer_state"]
    edit(path, lambda s: s.update(last_optimizer_state=flat))
    with pytest.raises(InputError, match="the optimizer's state is flat"):
        reshard(path, tmp_path / "out", fsdp=2)
    reshard(path, tmp_path / "out", fsdp=2, optimizer=False)


def test_metadata_of_fairscale_0_3_7_is_read_and_written(tmp_path):
    # RF 28: KeyError.
    truth = make(tmp_path / "source", old_metadata=True, untied=True)
    reshard(truth.first, tmp_path / "5", fsdp=5)
    assert_equal(opened(tmp_path / "5"), truth.weights)
    reshard(tmp_path / "5", tmp_path / "3", fsdp=3)
    for path in truth.files.values():
        assert not same(load(path)["shard_metadata"], load(tmp_path / "3" / path.name)["shard_metadata"])


def test_shapes_stay_the_type_that_they_were(tmp_path):
    truth = make(tmp_path / "source", parts=1)
    for path in truth.files.values():

        def sized(state):
            for unit in state["shard_metadata"]["param_metadata"]:
                for p in unit["params"].values():
                    p["shapes"] = [torch.Size(s) for s in p["shapes"]]

        edit(path, sized)
    reshard(truth.first, tmp_path / "2", fsdp=2, tp=2)
    param = load(tmp_path / "2" / truth.first.name)["shard_metadata"]["param_metadata"][0]["params"]
    assert type(param["flat_param_0"]["shapes"][0]) is torch.Size
    assert param["flat_param_0"]["shapes"][0] == (8, 4)


def test_one_file_may_be_named_with_or_without_a_folder(tmp_path, monkeypatch):
    # RF 31, 33: FileNotFoundError ''; KeyError for other braces.
    truth = make(tmp_path / "source", parts=1)
    monkeypatch.chdir(tmp_path)
    reshard(truth.first, "r{x}.pt", fsdp=1)
    assert load(tmp_path / "r{x}.pt")["model"].keys() == load(truth.first)["model"].keys()
    reshard(truth.first, "u.pt", unflatten=True)  # RF 30: not told to unflatten two outputs
    assert_equal(load(tmp_path / "u.pt")["model"], truth.weights)


def test_several_files_are_not_written_into_one(tmp_path):
    # RF 32: the last wins.
    truth = make(tmp_path / "source")
    with pytest.raises(UsageError, match="4 files are to be written, and r.pt is one"):
        reshard(truth.first, tmp_path / "r.pt", fsdp=2)
    with pytest.raises(UsageError, match="unflattened tensors are not sharded"):
        reshard(truth.first, tmp_path / "out", fsdp=2, unflatten=True)


def test_a_source_is_never_written_over(tmp_path):
    # RF 34: old shards stay beside the new ones.
    truth = make(tmp_path / "source")
    with pytest.raises(DestinationError):
        reshard(truth.first, truth.folder, fsdp=2, overwrite=True)


def test_the_configuration_tells_the_truth(tmp_path):
    # RF 36, RM 6
    truth = make(tmp_path / "source", parts=2, shards=3)
    reshard(truth.first, tmp_path / "out", tp=4, fsdp=5)
    cfg = load(tmp_path / "out" / "checkpoint_last-model_part-3-shard2.pt")["cfg"]
    assert cfg["common"]["model_parallel_size"] == cfg["model"].model_parallel_size == 4
    assert cfg["task"].model_parallel_size == 4
    assert cfg["distributed_training"] == {
        "distributed_world_size": 20,
        "distributed_rank": 11,  # parts of one shard are adjacent: 2 * 4 + 3
        "use_sharded_state": True,
    }
    assert cfg["checkpoint"] == {"checkpoint_suffix": "-model_part-3", "checkpoint_shard_count": 1}
    assert cfg["model"].data == "/path"
    reshard(truth.first, tmp_path / "u", tp=1, unflatten=True)
    cfg = load(tmp_path / "u" / "reshard-model_part-0.pt")["cfg"]
    assert cfg["distributed_training"]["use_sharded_state"] is False
    assert cfg["model"].use_sharded_state is False
    assert not registry.open_catalog(tmp_path / "u").warnings


class _Node:
    """As omegaconf's AnyNode: the value is in ``_val``."""

    def __init__(self, value):
        self._val = value


class _DictConfig:
    """As omegaconf's DictConfig: nodes are in ``_content``."""

    def __init__(self, content):
        self._content = {k: _DictConfig(v) if isinstance(v, dict) else _Node(v) for k, v in content.items()}


def test_a_configuration_of_omegaconf_tells_the_truth_too(tmp_path, monkeypatch):
    truth = make(tmp_path / "source", cfg="dict")
    for path in truth.files.values():
        edit(path, lambda s: s.update(cfg=_DictConfig(s["cfg"])))
    reshard(truth.first, tmp_path / "out", tp=1)
    cfg = load(tmp_path / "out" / truth.first.name)["cfg"]
    assert cfg._content["common"]._content["model_parallel_size"]._val == 1
    assert cfg._content["common"]._content["seed"]._val == 1
    assert cfg._content["distributed_training"]._content["distributed_world_size"]._val == 3


def test_what_can_t_be_imported_comes_along(tmp_path):
    # RF 35: UnpicklingError.
    truth = make(tmp_path / "source", foreign=True)
    reshard(truth.first, tmp_path / "out", fsdp=2)
    root = torch_file.read(tmp_path / "out" / truth.first.name, state_dict=False).contents.walked.root
    extra = lookup(lookup(root, "extra_state")[1], "train_iterator")[1]
    assert [k.text for k, _ in mapping_pairs(extra)] == ["epoch", "tokenization_cache"]
    assert plain(extra)["tokenization_cache"].name == f"{FOREIGN}.LockingArray"


@pytest.mark.parametrize("cfg", [None, "gone"])
def test_a_file_without_configuration_is_merged_all_the_same(tmp_path, cfg):
    # RM 5: AttributeError, TypeError, after all the work.
    truth = make(tmp_path / "source")
    for path in truth.files.values():
        edit(path, lambda s: s.update(cfg=None) if cfg is None else s.pop("cfg"))
    reshard(truth.first, tmp_path / "out", tp=1, unflatten=True)
    assert_equal(opened(tmp_path / "out"), truth.weights)


def test_criterion_task_state_and_the_rest_come_along(tmp_path):
    # RM 9
    truth = make(tmp_path / "source")
    reshard(truth.first, tmp_path / "out", tp=1, unflatten=True)
    state = load(tmp_path / "out" / "reshard-model_part-0.pt")
    assert list(state) == list(load(truth.first))
    assert state["extra_state"]["rng_tracker_states"]["model-parallel-rng"].tolist() == list(range(16))


@pytest.mark.parametrize(
    "name", ["decoder.project_in_dim.weight", "decoder.layers.0.fc1.lora_A.weight", "decoder.mystery"]
)
def test_names_that_are_not_known_are_refused_never_dropped(tmp_path, name):
    # RM 1: dropped silently; RM 10: adapters are joined by a part of their name.
    truth = make_unflattened(tmp_path / "source")
    for path in truth.files.values():
        edit(path, lambda s: s["model"].update({name: torch.ones(2, 4)}))
    with pytest.raises(InputError, match="names that the partition file does not know") as caught:
        reshard(truth.first, tmp_path / "out", tp=1)
    assert caught.value.problems == (f"{name}: f32[2,4], f32[2,4]",)
    partition = tmp_path / "more.yml"
    partition.write_text(f"tensors:\n  - {{key: {name}, split: rows}}\n")
    reshard(truth.first, tmp_path / "out", tp=1, partition=partition)
    assert load(tmp_path / "out" / "reshard-model_part-0.pt")["model"][name].shape == (2, 8)


def test_a_tied_projection_is_as_long_as_the_vocabulary(tmp_path):
    # RM 3: rank 0's rows only.
    truth = make_unflattened(tmp_path / "source", parts=4)
    reshard(truth.first, tmp_path / "1", tp=1)
    assert load(tmp_path / "1" / "reshard-model_part-0.pt")["model"][OUTPUT].shape == (16, 4)
    reshard(tmp_path / "1", tmp_path / "4", tp=4)
    for j in range(4):
        assert_equal(load(tmp_path / "4" / f"reshard-model_part-{j}.pt")["model"], truth.parts[j])


def test_a_projection_of_its_own_is_a_copy_in_every_part(tmp_path):
    truth = make_unflattened(tmp_path / "source", parts=2, untied=True)
    reshard(truth.first, tmp_path / "1", tp=1)
    reshard(tmp_path / "1", tmp_path / "4", tp=4)
    assert load(tmp_path / "4" / "reshard-model_part-3.pt")["model"][OUTPUT].equal(truth.weights[OUTPUT])


def test_a_tensor_without_dimensions_is_a_copy_whatever_its_name(tmp_path):
    # RM 4: IndexError.
    truth = make_unflattened(tmp_path / "source")
    for path in truth.files.values():
        edit(path, lambda s: s["model"].update({"decoder.scale": torch.tensor(2.0)}))
    reshard(truth.first, tmp_path / "out", tp=1)
    assert load(tmp_path / "out" / "reshard-model_part-0.pt")["model"]["decoder.scale"].shape == ()


@pytest.mark.parametrize(("vocab", "parts"), [(6, 4), (5, 4), (5, 3)])
def test_sizes_that_can_t_be_divided_are_refused(tmp_path, vocab, parts):
    # RM 7: IndexError; parts of 2, 2, 1 rows.
    truth = make_unflattened(tmp_path / "source", parts=1, vocab=vocab, dim=12, ffn=12)
    with pytest.raises(UsageError, match=f"can't be divided into {parts} equal parts") as caught:
        reshard(truth.first, tmp_path / "out", tp=parts)
    assert f"{EMBED}: dimension 0 has {vocab} elements" in caught.value.problems


def test_copies_that_differ_are_refused_unless_the_first_is_asked_for(tmp_path):
    # RM 8: warns, and takes rank 0's.
    truth = make_unflattened(tmp_path / "source")
    edit(truth.files[1, 0], lambda s: s["model"]["decoder.layer_norm.weight"].add_(0.5))
    with pytest.raises(Damaged, match=r"part-0\.pt: decoder\.layer_norm\.weight: copies .* do not agree"):
        reshard(truth.first, tmp_path / "out", tp=1)
    reshard(truth.first, tmp_path / "out", tp=1, replicas="first")
    assert_equal(opened(tmp_path / "out"), truth.weights)


def test_metadata_fits_the_parts_that_it_lies_beside(tmp_path):
    # RM 9: kept though the shapes no longer fit.
    truth = make_unflattened(tmp_path / "source")
    reshard(truth.first, tmp_path / "out", tp=1)
    state = load(tmp_path / "out" / "reshard-model_part-0.pt")
    for unit in state["shard_metadata"]["param_metadata"]:
        for p in unit["params"].values():
            for name, shape in zip(p["names"], p["shapes"], strict=True):
                full = f"{unit['fsdp_path']}.{name}" if unit["fsdp_path"] else name
                assert state["model"][full].shape == shape


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


@pytest.mark.parametrize(("parts", "shards"), [(4, 1), (2, 256)])
def test_the_published_examples(tmp_path, parts, shards):
    """2.7B: four parts, merged into one; 6.7B: two parts of 256 shards, each merged into one and back."""
    truth = make(tmp_path / "raw", parts=parts, shards=shards, layers=1, dtype=torch.float16)
    reshard(truth.first, tmp_path / "merged", fsdp=1, unflatten=True)
    for j in range(parts):
        assert_equal(load(tmp_path / "merged" / f"reshard-model_part-{j}.pt")["model"], truth.parts[j])
    reshard(tmp_path / "merged", tmp_path / "one", tp=1)
    assert_equal(load(tmp_path / "one" / "reshard-model_part-0.pt")["model"], truth.weights)
    reshard(truth.first, tmp_path / "flat", fsdp=1)
    reshard(tmp_path / "flat", tmp_path / "back", fsdp=shards)
    for path in list(truth.files.values())[::17]:
        a, b = load(path), load(tmp_path / "back" / path.name)
        for key in ("model", "last_optimizer_state", "shard_metadata", "cfg"):
            assert not same(a[key], b[key]), path.name


def test_namespaces_stay_namespaces(tmp_path):
    truth = make(tmp_path / "source")
    reshard(truth.first, tmp_path / "out", fsdp=1)
    assert type(load(tmp_path / "out" / truth.first.name)["cfg"]["model"]) is argparse.Namespace


def test_a_state_that_shard_0_has_alone_is_divided_over_parts(tmp_path):
    truth = make(tmp_path / "source", shards=2)
    reshard(truth.first, tmp_path / "u", unflatten=True)
    for (j, i), path in truth.files.items():
        gathered = load(tmp_path / "u" / f"reshard-model_part-{j}.pt")["last_optimizer_state"]
        edit(path, lambda s, i=i, g=gathered: s.update(last_optimizer_state=-1 if i else g))
    reshard(truth.first, tmp_path / "out", tp=1, fsdp=4)
    reshard(tmp_path / "out", tmp_path / "whole", unflatten=True)
    moments = full_moments(load(tmp_path / "whole" / "reshard-model_part-0.pt"), names(truth))
    for slot in SLOTS:
        assert_equal(moments[slot], truth.moments[slot])


def test_what_is_no_tensor_in_a_state_dict_stays(tmp_path):
    truth = make(tmp_path / "source", parts=1)
    for path in truth.files.values():
        edit(path, lambda s: s["model"].update({"decoder._extra_state": {"scale": 2}}))
    reshard(truth.first, tmp_path / "out", unflatten=True)
    model = load(tmp_path / "out" / "reshard-model_part-0.pt")["model"]
    assert model["decoder._extra_state"] == {"scale": 2}


def test_a_tie_that_is_none_any_more_is_not_lost(tmp_path):
    truth = make_unflattened(tmp_path / "source", parts=1)
    edit(truth.first, lambda s: s["model"].update({OUTPUT: s["model"][EMBED] + 1}))
    with pytest.raises(InputError, match="says that tensors are tied") as caught:
        reshard(truth.first, tmp_path / "out", fsdp=2)
    assert caught.value.problems == (f"{truth.first.name}: {OUTPUT} is not {EMBED}",)


def test_verify_compares_with_the_source(tmp_path):
    from remap import verify

    truth = make(tmp_path / "source")
    reshard(truth.first, tmp_path / "out", tp=1, fsdp=2)
    assert verify(tmp_path / "out", against=truth.first)[1] == []
    for path in truth.files.values():
        edit(path, lambda s: s["model"]["decoder.version"].add_(1))
    assert [p.split(":")[0] for p in verify(tmp_path / "out", against=truth.first)[1]] == ["decoder.version"]


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


def test_files_of_torch_before_1_6_are_cut_like_any_other(tmp_path):
    truth = make(tmp_path / "source", parts=1)
    for path in truth.files.values():
        torch.save(load(path), path, _use_new_zipfile_serialization=False)
    reshard(truth.first, tmp_path / "2", fsdp=2)
    reshard(tmp_path / "2", tmp_path / "3", fsdp=3)
    for path in truth.files.values():
        a, b = load(path), load(tmp_path / "3" / path.name)
        for key in ("model", "last_optimizer_state", "shard_metadata"):
            assert not same(a[key], b[key])
