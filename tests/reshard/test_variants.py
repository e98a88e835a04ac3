"""Forms of the optimizer's state and of shard_metadata that other versions and settings give.

There and back is the identity, and between lies the truth. Source: metaseq ``optim/adam.py`` (amsgrad),
``optim/fused_adam.py`` (v1 with scales of fp16 moments, v2 with a step a group), fairscale with
``flatten_parameters=False``, fairscale 0.3.7 and 0.3.8.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from formats.metaseq.samples import cut, edit, load, make, same
from reshard.cutting import assert_equal, names, opened, shards_of

from remap.errors import InputError
from remap.reshard import reshard


def amsgrad(held: dict[str, Any], groups: list[dict[str, Any]]) -> None:
    """A third moment."""
    held["max_exp_avg_sq"] = held["exp_avg_sq"] * 2
    groups[0]["amsgrad"] = True


def fused_v1(held: dict[str, Any], groups: list[dict[str, Any]]) -> None:
    """Moments in fp16, and the numbers that they are to be multiplied by."""
    held.update(exp_avg=held["exp_avg"].half(), exp_avg_sq=held["exp_avg_sq"].half())
    held.update(exp_avg_scale=0.25, exp_avg_sq_scale=2.0)


def fused_v2(held: dict[str, Any], groups: list[dict[str, Any]]) -> None:
    """The step is the group's."""
    held.pop("step", None)
    groups[0]["step"] = 3


VARIANTS = {"amsgrad": amsgrad, "fused-v1": fused_v1, "fused-v2": fused_v2}


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_state_of_another_adam_is_cut_and_comes_back(variant, tmp_path):
    truth = make(tmp_path / "source", parts=1, tiny=5, shards=4)

    def change(state):
        held = state["last_optimizer_state"]
        for slots in held["state"].values():
            VARIANTS[variant](slots, held["param_groups"])

    for path in truth.files.values():
        edit(path, change)
    wanted = shards_of(truth.folder)
    reshard(truth.first, tmp_path / "3", fsdp=3)
    for state in shards_of(tmp_path / "3"):
        sizes = [v.shape for k, v in state["model"].items() if k.endswith("flat_param_0")]
        for slots, size in zip(state["last_optimizer_state"]["state"].values(), sizes, strict=True):
            assert {v.shape for v in slots.values() if isinstance(v, torch.Tensor)} == {size}
    reshard(tmp_path / "3", tmp_path / "back", fsdp=4)
    for a, b in zip(wanted, shards_of(tmp_path / "back"), strict=True):
        assert not same(a["last_optimizer_state"], b["last_optimizer_state"])
    reshard(truth.first, tmp_path / "u", unflatten=True)
    whole = load(tmp_path / "u" / "reshard-model_part-0.pt")["last_optimizer_state"]
    order = names(truth)
    dtype = torch.float16 if variant == "fused-v1" else torch.float32
    moments = {"exp_avg": {n: v.to(dtype) for n, v in truth.moments["exp_avg"].items()}}
    assert_equal({n: whole["state"][i]["exp_avg"] for i, n in enumerate(order)}, moments["exp_avg"])
    if variant == "amsgrad":
        doubled = {n: v * 2 for n, v in truth.moments["exp_avg_sq"].items()}
        assert_equal({n: whole["state"][i]["max_exp_avg_sq"] for i, n in enumerate(order)}, doubled)
    if variant == "fused-v1":
        assert {(s["exp_avg_scale"], s["exp_avg_sq_scale"]) for s in whole["state"].values()} == {(0.25, 2.0)}
    if variant == "fused-v2":
        assert whole["param_groups"][0]["step"] == 3


def test_only_what_is_as_long_as_the_shard_on_every_rank_is_cut(tmp_path):
    """Maps and maxima of 8-bit optimizers, one of them by chance as long as one unit's shard."""
    truth = make(tmp_path / "source", parts=1, shards=2, tiny=6)

    def add(state):
        for held in state["last_optimizer_state"]["state"].values():
            held.update(qmap1=torch.arange(256.0), name_map=torch.arange(3.0))

    for path in truth.files.values():
        edit(path, add)
    reshard(truth.first, tmp_path / "3", fsdp=3)
    held = shards_of(tmp_path / "3")[0]["last_optimizer_state"]["state"]
    assert held[0]["qmap1"].shape == (256,)
    assert held[0]["name_map"].tolist() == [0, 1, 2]
    assert held[max(held)]["name_map"].tolist() == [0, 1]  # six elements by their length: nothing else tells


def unflattened_shards(folder, *, old: bool) -> dict[str, torch.Tensor]:
    """Two ranks of fairscale with ``flatten_parameters=False``: every parameter is a shard of its own. The
    metadata lists a unit's own parameters before those of nested units, the model and the optimizer go by
    modules: emb, out | layer against emb, layer, out."""
    shapes = {"emb.weight": (3, 3), "layer.weight": (2, 3), "layer.bias": (5,), "out.weight": (3, 1)}
    units = {"": ["emb.weight", "out.weight"], "layer": ["layer.weight", "layer.bias"]}
    numels = {n: torch.Size(s).numel() for n, s in shapes.items()}
    truth = {n: torch.arange(float(numels[n])).reshape(s) + len(n) for n, s in shapes.items()}
    folder.mkdir()
    for rank in range(2):
        pieces = {n: cut(v.reshape(-1), 2, rank) for n, v in truth.items()}
        metadata = []
        for path, members in units.items():
            short = [n.removeprefix(f"{path}.") for n in members]
            common = {"fsdp_path": path, "no_broadcast_optim_state": False}
            if old:
                form = {
                    "is_flat": False,
                    "num_padded": [pieces[n][1] for n in members],
                    "param_names": short,
                    "param_shapes": [torch.Size(shapes[n]) for n in members],
                    "param_numels": [numels[n] for n in members],
                }
            else:
                form = {
                    "params": {
                        s: {
                            "names": [s],
                            "shapes": [shapes[n]],
                            "numels": [truth[n].numel()],
                            "padding": pieces[n][1],
                        }
                        for s, n in zip(short, members, strict=True)
                    },
                    "shared_param_info": [],
                }
            metadata.append({**common, **form})
        moments = {
            i: {"step": 3, "exp_avg": p * 0.5, "exp_avg_sq": p * p}
            for i, (p, _) in enumerate(pieces.values())
        }
        state = {
            "model": {n: p for n, (p, _) in pieces.items()},
            "optimizer_history": [{"num_updates": 3}],
            "extra_state": {},
            "last_optimizer_state": {"state": moments, "param_groups": [{"lr": 0.1, "params": [0, 1, 2, 3]}]},
            "shard_metadata": {"param_metadata": metadata, "buffer_names": []},
        }
        torch.save(state, folder / f"checkpoint_last-shard{rank}.pt")
    return truth


@pytest.mark.parametrize("old", [False, True], ids=["since-0.3.9", "0.3.7"])
def test_parameters_that_are_sharded_one_by_one(old, tmp_path):
    truth = unflattened_shards(tmp_path / "source", old=old)
    assert_equal(opened(tmp_path / "source"), truth)
    reshard(tmp_path / "source", tmp_path / "u", unflatten=True)
    whole = load(tmp_path / "u" / "reshard.pt")["last_optimizer_state"]
    order = ["emb.weight", "out.weight", "layer.weight", "layer.bias"]  # the metadata's
    for i, name in enumerate(order):
        assert whole["state"][i]["exp_avg"].equal(truth[name] * 0.5), name
        assert whole["state"][i]["exp_avg_sq"].equal(truth[name] ** 2), name
    for source, count in (("source", 5), ("u", 3)):
        reshard(tmp_path / source, tmp_path / f"{count}", fsdp=count)
        reshard(tmp_path / f"{count}", tmp_path / f"{count}-back", fsdp=2)
        for rank in range(2):
            (path,) = (tmp_path / f"{count}-back").glob(f"*shard{rank}.pt")
            a, b = load(tmp_path / "source" / f"checkpoint_last-shard{rank}.pt"), load(path)
            for key in ("last_optimizer_state", "shard_metadata"):
                assert not same(a[key], b[key]), (key, count)
            assert_equal(b["model"], a["model"])


def test_the_form_of_0_3_7_by_hand(tmp_path):
    """Its flat tensor is called ``flat_param``; it knows of no ties. Two ranks, five elements and one of
    padding."""
    for rank, (values, padding) in enumerate([([1.0, 2.0, 3.0], 0), ([4.0, 5.0, 0.0], 1)]):
        unit = {
            "fsdp_path": "",
            "is_flat": True,
            "num_padded": [padding],
            "param_names": ["a.weight", "a.bias"],
            "param_shapes": [torch.Size([2, 2]), torch.Size([1])],
            "param_numels": [4, 1],
            "no_broadcast_optim_state": False,
        }
        state = {
            "model": {"flat_param": torch.tensor(values)},
            "shard_metadata": {"param_metadata": [unit], "buffer_names": []},
        }
        torch.save(state, tmp_path / f"checkpoint_last-shard{rank}.pt")
    found = opened(tmp_path)
    assert found["a.weight"].tolist() == [[1, 2], [3, 4]]
    assert found["a.bias"].tolist() == [5]
    reshard(tmp_path, tmp_path / "three", fsdp=3)
    states = shards_of(tmp_path / "three", "checkpoint_last-shard{}.pt")
    assert [s["model"]["flat_param"].tolist() for s in states] == [[1, 2], [3, 4], [5, 0]]
    assert [s["shard_metadata"]["param_metadata"][0]["num_padded"] for s in states] == [[0], [0], [1]]


def test_a_moment_that_only_some_ranks_have_as_a_shard_is_refused(tmp_path):
    truth = make(tmp_path / "source", parts=1, shards=2)
    key = max(load(truth.first)["last_optimizer_state"]["state"])
    edit(
        truth.files[0, 1],
        lambda s: s["last_optimizer_state"]["state"][key].update(exp_avg=torch.zeros(1)),
    )
    with pytest.raises(InputError, match="not cut as the weights are"):
        reshard(truth.first, tmp_path / "out", fsdp=1)
