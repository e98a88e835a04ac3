"""The optimizer's state is cut like its weights, in every form. Numbers in comments
are faults of metaseq's scripts: see ``test_faults``."""

from __future__ import annotations

import pytest
import torch
from formats.metaseq.samples import (
    SLOTS,
    edit,
    load,
    make,
    same,
)
from reshard.cutting import (
    assert_equal,
    full_moments,
    names,
    opened,
    shards_of,
    tiny,
)

from remap.errors import Damaged, InputError
from remap.reshard import reshard


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
    with pytest.raises(InputError, match="keeps once for all elements") as caught:
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
