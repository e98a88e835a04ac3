"""What files hold in common has to be the same in all of them, where they are put together.

The right value is a refusal: one file's would be taken for all, and nothing in the output would show it.
"""

from __future__ import annotations

import pytest
import torch
from formats.metaseq.samples import edit, load, make
from reshard.cutting import opened

import remap
from remap.errors import Damaged, InputError
from remap.parallel import Settings
from remap.reshard import reshard


def optimizer(change):
    """An edit of a file's optimizer state."""
    return lambda state: change(state["last_optimizer_state"])


CHANGES = {
    "state.0.step is 9": lambda held: held["state"][0].update(step=9),
    "param_groups.0.lr is 9.0": lambda held: held["param_groups"][0].update(lr=9.0),
    "loss_scale is 8.0": lambda held: held.update(loss_scale=8.0),
    # FusedAdam's fp16 moments are multiples of a number that every rank has for itself
    "state.1.exp_avg_scale is 0.5": lambda held: held["state"][1].update(exp_avg_scale=0.5),
}


@pytest.mark.parametrize("said", CHANGES)
def test_shards_that_differ_in_a_value_of_the_optimizer_are_refused(tmp_path, said):
    truth = make(tmp_path / "source", parts=1)
    edit(truth.files[0, 2], optimizer(CHANGES[said]))
    with pytest.raises(InputError, match="keeps once for all elements") as e:
        reshard(truth.first, tmp_path / "out", fsdp=2)
    assert e.value.problems[0].startswith(f"{truth.files[0, 2].name}: {said}, in {truth.first.name} ")
    with pytest.raises(InputError, match="keeps once for all elements"):
        remap.convert(truth.first, tmp_path / "out", to="dcp")
    reshard(truth.first, tmp_path / "out", fsdp=3, dtype="bf16")  # each keeps its own


def test_parts_may_differ_until_they_are_put_together(tmp_path):
    truth = make(tmp_path / "source")
    for shard in range(3):
        edit(truth.files[1, shard], optimizer(CHANGES["state.0.step is 9"]))
    reshard(truth.first, tmp_path / "2", fsdp=2)
    with pytest.raises(InputError, match="state.0.step is 9"):
        reshard(truth.first, tmp_path / "1", tp=1)


@pytest.mark.parametrize(
    "change",
    [
        lambda held: held["state"][1].update(step=9),
        lambda held: held["state"][1].pop("exp_avg"),
        lambda held: held["state"].pop(1),
    ],
)
def test_parameters_of_one_flat_tensor_have_one_state(tmp_path, change):
    """Steps of the first parameter were taken for all; moments that one of them lacks were lost for all."""
    truth = make(tmp_path / "source", parts=1)
    reshard(truth.first, tmp_path / "u.pt", unflatten=True)
    edit(tmp_path / "u.pt", optimizer(change))
    with pytest.raises(InputError, match="parameters that lie in one flat tensor have different states") as e:
        reshard(tmp_path / "u.pt", tmp_path / "out", fsdp=2)
    assert e.value.problems[0].startswith("flat_param_0: ")


def test_the_shard_whose_moment_is_too_short_is_named(tmp_path):
    truth = make(tmp_path / "source", parts=1)
    edit(truth.files[0, 1], optimizer(lambda held: held["state"][0].update(exp_avg=torch.zeros(5))))
    with pytest.raises(InputError, match="not cut as the weights are") as e:
        reshard(truth.first, tmp_path / "out", fsdp=2)
    size = load(truth.first)["model"]["flat_param_0"].numel()
    (problem,) = e.value.problems
    assert problem.startswith(
        f"{truth.files[0, 1].name}: exp_avg 0 is f32[5], flat_param_0 has {size} elements"
    )


def test_a_tensor_that_only_one_shard_has_is_not_lost(tmp_path):
    truth = make(tmp_path / "source")
    edit(truth.files[0, 1], lambda state: state["model"].update({"decoder.odd": torch.ones(3)}))
    with pytest.raises(Damaged, match="shards hold other tensors than the first") as e:
        opened(truth.first)
    assert e.value.problems == (f"{truth.files[0, 1].name}: decoder.odd",)


def test_buffers_of_shards_are_compared_where_one_is_taken(tmp_path):
    truth = make(tmp_path / "source", buffers=True)
    other = torch.tensor([100002])
    edit(truth.files[0, 1], lambda state: state["model"].update({"decoder.steps_seen": other}))
    with pytest.raises(Damaged, match="decoder.steps_seen has other bytes"):
        remap.open(truth.first).state_dict()
    with pytest.raises(Damaged, match="decoder.steps_seen has other bytes"):
        reshard(truth.first, tmp_path / "u", unflatten=True)
    reshard(truth.first, tmp_path / "kept", fsdp=3, dtype="bf16")
    kept = load(tmp_path / "kept" / truth.files[0, 1].name)
    assert kept["model"]["decoder.steps_seen"].equal(other)


@pytest.mark.parametrize("how", ["reshard", "convert"])
def test_the_first_copy_is_taken_where_that_is_asked(tmp_path, how):
    truth = make(tmp_path / "source", buffers=True)
    for place in ((0, 1), (1, 0)):
        edit(truth.files[place], lambda s: s["model"].update({"decoder.steps_seen": torch.tensor([7])}))
    settings = Settings(copies="first")
    if how == "reshard":
        reshard(truth.first, tmp_path / "out", tp=1, unflatten=True, settings=settings)
    else:
        remap.convert(truth.first, tmp_path / "out", to="safetensors", settings=settings)
    assert remap.open(tmp_path / "out")["decoder.steps_seen"].tolist() == [100001]
