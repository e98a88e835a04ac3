"""The optimizer's state between metaseq and DCP: by weight, its moments moved as the weights are."""

from __future__ import annotations

import json

import pytest
import torch
import torch.distributed.checkpoint as dcp
from click.testing import CliRunner
from formats.metaseq.samples import EMBED, OUTPUT, SLOTS, Truth, edit, load, make, same
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

from remap import api
from remap.cli.main import cli
from remap.errors import InputError, UsageError
from remap.reshard import reshard

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


def nested(folder, tmp_path) -> dict:
    """What torch itself makes of a DCP folder."""
    dcp_to_torch_save(folder, tmp_path / "nested.pt")
    return torch.load(tmp_path / "nested.pt", weights_only=False)


def assert_moments(state: dict, truth: Truth) -> None:
    for slot in SLOTS:
        assert {n for n in state if slot in state[n]} == truth.moments[slot].keys()
        assert all(state[n][slot].equal(v) for n, v in truth.moments[slot].items())


@pytest.mark.parametrize("ranks", [None, 3])
def test_metaseq_to_dcp_is_what_torch_would_have_saved(ranks, tmp_path):
    truth = make(tmp_path / "raw")
    receipt = api.convert(truth.first, tmp_path / "out", to="dcp", ranks=ranks)
    assert "last_optimizer_state" not in receipt.left_behind
    found = nested(tmp_path / "out", tmp_path)
    assert all(found["model"][n].equal(v) for n, v in truth.weights.items())
    assert_moments(found["optim"]["state"], truth)
    assert found["optim"]["state"][EMBED]["step"].equal(torch.tensor(3.0))  # as torch's Adam keeps it
    names = list(truth.moments["exp_avg"])
    (group,) = found["optim"]["param_groups"]
    assert (group["lr"], sorted(group["params"])) == (1e-3, sorted(names))
    assert found["optim"]["loss_scale"] == 4.0


def test_a_nested_torch_file_is_what_torch_makes_of_the_dcp_folder(tmp_path):
    truth = make(tmp_path / "raw")
    receipt = api.convert(truth.first, tmp_path / "out.pt", under="model")
    assert "last_optimizer_state" not in receipt.left_behind
    api.convert(truth.first, tmp_path / "dcp", to="dcp")
    found = torch.load(tmp_path / "out.pt", weights_only=True)
    wanted = nested(tmp_path / "dcp", tmp_path)
    assert found.keys() == {"model", "optim"}
    assert not same(dict(found["model"]), {k: wanted["model"][k] for k in found["model"]})
    assert all(not same(found["optim"][k], wanted["optim"][k]) for k in ("param_groups", "loss_scale"))
    assert found["optim"]["state"].keys() == wanted["optim"]["state"].keys()
    assert_moments(found["optim"]["state"], truth)
    api.convert(tmp_path / "out.pt", tmp_path / "again", to="dcp")
    assert_moments(nested(tmp_path / "again", tmp_path)["optim"]["state"], truth)
    receipt = api.convert(truth.first, tmp_path / "without.pt", under="model", optimizer=False)
    assert "last_optimizer_state" in receipt.left_behind


def test_torch_loads_it_into_an_optimizer(tmp_path):
    from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict, set_optimizer_state_dict

    truth = make(tmp_path / "raw", parts=1, layers=1, untied=True)
    api.convert(truth.first, tmp_path / "out", to="dcp")
    model = torch.nn.Module()
    for name, value in truth.moments["exp_avg"].items():
        *path, leaf = name.split(".")
        at = model
        for piece in path:
            if not hasattr(at, piece):
                at.add_module(piece, torch.nn.Module())
            at = getattr(at, piece)
        at.register_parameter(leaf, torch.nn.Parameter(torch.zeros_like(value)))
    adam = torch.optim.Adam(model.parameters(), lr=0.5)
    state = {"optim": get_optimizer_state_dict(model, adam)}
    planner = dcp.DefaultLoadPlanner(allow_partial_load=True)  # settings that metaseq's Adam has not
    dcp.load(state, checkpoint_id=tmp_path / "out", planner=planner)
    set_optimizer_state_dict(model, adam, state["optim"])
    for name, p in model.named_parameters():
        assert all(adam.state[p][s].equal(truth.moments[s][name]) for s in SLOTS)
        assert adam.state[p]["step"] == 3
    assert adam.param_groups[0]["lr"] == 1e-3


@pytest.mark.parametrize("case", [{}, {"untied": True}, {"parts": 1, "step": torch.tensor(3.0)}])
def test_to_dcp_and_back_and_cut_again_is_the_identity(case, tmp_path):
    truth = make(tmp_path / "raw", **case)
    api.convert(truth.first, tmp_path / "dcp", to="dcp", ranks=2)
    receipt = api.convert(tmp_path / "dcp", tmp_path / "one", to="metaseq")
    assert receipt.left_behind == []
    reshard(tmp_path / "one", tmp_path / "back", tp=truth.case.parts, fsdp=truth.case.shards)
    for (j, i), path in truth.files.items():
        part = f"-model_part-{j}" if truth.case.parts > 1 else ""
        a, b = load(path), load(tmp_path / "back" / f"reshard{part}-shard{i}.pt")
        for held in a["last_optimizer_state"]["state"].values():
            held["step"] = torch.tensor(3.0)
        assert not same(a["model"], dict(b["model"]))
        for key in ("last_optimizer_state", "shard_metadata"):
            assert not same(a[key], b[key]), key
        assert b["optimizer_history"][-1]["num_updates"] == 3  # of the weights' steps


def test_moments_go_the_way_of_their_weights_through_a_pack(tmp_path):
    """qkv_proj is cut into three of Hugging Face's; K, V, Q in this order."""
    truth = make(tmp_path / "raw", parts=2, dim=8, cfg="dict")
    api.convert(truth.first, tmp_path / "hf", ["opt/hf-to-metaseq"], inverse=True, to="dcp", ranks=2)
    state = nested(tmp_path / "hf", tmp_path)["optim"]["state"]
    for slot in SLOTS:
        k, v, q = truth.moments[slot]["decoder.layers.0.self_attn.qkv_proj.weight"].chunk(3)
        for letter, wanted in {"k": k, "v": v, "q": q}.items():
            found = state[f"model.decoder.layers.0.self_attn.{letter}_proj.weight"]
            assert found[slot].equal(wanted)
            assert found["step"] == 3
    api.convert(tmp_path / "hf", tmp_path / "back", ["opt/hf-to-metaseq"], to="metaseq")
    state = load(tmp_path / "back" / "reshard.pt")
    held = state["last_optimizer_state"]["state"]
    units = state["shard_metadata"]["param_metadata"]
    paths = [(u["fsdp_path"], u["params"]["flat_param_0"]["names"]) for u in units]
    order = [f"{path}.{n}" if path else n for path, names in paths for n in names]
    assert sorted(order) == sorted(truth.moments["exp_avg"])
    assert OUTPUT not in order
    assert_moments({n: held[i] for i, n in enumerate(order)}, truth)


def test_the_step_of_a_group_becomes_that_of_its_weights(tmp_path):
    """FusedAdam v2 keeps one step a group (metaseq ``optim/fused_adam.py``); torch's Adam one a weight."""
    truth = make(tmp_path / "raw", parts=1)
    for path in truth.files.values():

        def change(state):
            for held in state["last_optimizer_state"]["state"].values():
                del held["step"]
            state["last_optimizer_state"]["param_groups"][0]["step"] = 3

        edit(path, change)
    api.convert(truth.first, tmp_path / "out", to="dcp")
    found = nested(tmp_path / "out", tmp_path)["optim"]
    assert found["param_groups"][0]["step"] == 3
    assert all(held["step"].equal(torch.tensor(3.0)) for held in found["state"].values())


def test_what_has_no_meaning_by_weight_is_refused_and_can_be_left(tmp_path):
    truth = make(tmp_path / "raw", parts=1)
    for path in truth.files.values():
        edit(path, lambda s: s["last_optimizer_state"]["state"][0].update(qmap1=torch.arange(256.0)))
    with pytest.raises(InputError, match="no meaning weight by weight") as caught:
        api.convert(truth.first, tmp_path / "out", to="dcp")
    assert caught.value.problems == ("qmap1 of 0",)
    arguments = ["convert", truth.first, tmp_path / "out", "--to", "dcp", "--no-optimizer", "--json"]
    done = CliRunner().invoke(cli, [str(a) for a in arguments])
    assert done.exit_code == 0, done.output
    assert "last_optimizer_state" in json.loads(done.stdout)["left_behind"]


def test_a_model_that_metaseq_does_not_know_is_refused_and_can_be_left(ranks, tmp_path):
    with pytest.raises(InputError, match="its partition does not say") as caught:
        api.convert(ranks / "fsdp2", tmp_path / "out", to="metaseq")
    assert "--no-optimizer" in str(caught.value)
    receipt = api.convert(ranks / "fsdp2", tmp_path / "out", to="metaseq", optimizer=False)
    assert receipt.left_behind == ["optim", "step", "cfg"]


def test_a_weight_that_is_computed_has_no_state(tmp_path):
    truth = make(tmp_path / "raw", parts=1, layers=1)
    pack = tmp_path / "double.yaml"
    pack.write_text(
        "remap: 1\npack: test/double\nversion: 1.0.0\ntitle: t\nstages:\n  - rules:\n"
        "      - id: norm\n        from: decoder.layer_norm.weight\n        to: decoder.layer_norm.weight\n"
        "        do: {scale: {by: 2}}\n        inverse: none\n        because: t\n      - keep: '**'\n"
    )
    with pytest.raises(UsageError, match="can't follow") as caught:
        api.convert(truth.first, tmp_path / "out", [pack], to="dcp")
    assert caught.value.problems == ("decoder.layer_norm.weight: it is scaled",)


def test_a_dcp_folder_may_leave_its_optimizer(ranks, tmp_path):
    receipt = api.convert(ranks / "fsdp2", tmp_path / "out", optimizer=False)
    assert receipt.left_behind == ["optim"]
    assert api.catalog(tmp_path / "out", at="").entries.keys() == {
        f"model.{k}" for k in api.catalog(ranks / "fsdp2").entries
    }
    assert api.open(tmp_path / "out").extras["step"] == 3
