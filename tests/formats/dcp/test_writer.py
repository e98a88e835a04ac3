"""Real torch.distributed.checkpoint loads what remap writes: on one process, on 2 and 4 ranks."""

from __future__ import annotations

import json
import pickle

import pytest
import torch
import torch.distributed.checkpoint as dcp
from click.testing import CliRunner
from formats.dcp import torch_ranks as truth
from formats.dcp.launch import run_ranks
from formats.suite import FormatSuite, random_tensors, source_of, write
from safetensors.torch import load_file, save_file
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

from remap import api
from remap.checkpoint import Checkpoint
from remap.cli.main import cli
from remap.errors import UsageError
from remap.expr import Concat, Take
from remap.formats import registry
from remap.formats.base import WriteOptions
from remap.types import Catalog

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


class TestDcp(FormatSuite):
    name = "dcp"


DCP = registry.get("dcp")


def takes(source: Catalog) -> dict[str, Take]:
    return {k: Take(e) for k, e in source.entries.items()}


def bits(value: torch.Tensor) -> torch.Tensor:
    return value.reshape(-1).view(torch.uint8)


def test_torch_loads_every_type_and_shape(tmp_path):
    tensors = random_tensors()
    source = source_of(tensors, tmp_path / "in.safetensors")
    folder = write(DCP, takes(source), source, tmp_path / "out")
    found = {k: torch.zeros_like(v) for k, v in tensors.items()}
    dcp.load(found, checkpoint_id=folder)
    assert all(bits(found[k]).equal(bits(v)) for k, v in tensors.items())


def test_fsdp2_loads_it_on_two_and_four_ranks(ranks, tmp_path):
    """The judge of the whole: folders that remap wrote, into models and optimizers of real FSDP2."""
    save_file({k: v.clone() for k, v in truth.weights().items()}, tmp_path / "in.safetensors")
    api.convert(tmp_path / "in.safetensors", tmp_path / "model-fresh", to="dcp")
    api.convert(ranks / "fsdp2", tmp_path / "all-of-fsdp2", at="", ranks=3)
    api.convert(ranks / "fsdp1", tmp_path / "carried-of-fsdp1")
    folders = [tmp_path / n for n in ("model-fresh", "all-of-fsdp2", "carried-of-fsdp1")]
    lines = [json.loads(line) for line in run_ranks("load", *folders).splitlines() if line.startswith("{")]
    assert [(x["ranks"], x["folder"]) for x in lines] == [(n, f.name) for n in (2, 4) for f in folders]
    assert [x["wrong"] for x in lines] == [[]] * 6


@pytest.mark.parametrize("at", [None, ""])
def test_everything_else_is_carried_along(at, ranks, tmp_path):
    receipt = api.convert(ranks / "fsdp2", tmp_path / "out", at=at)
    assert receipt.left_behind == []
    state = {"step": 0, "cfg": {"lr": 0, "names": 0, "empty": 0}, "optim": {"param_groups": [{"betas": 0}]}}
    dcp.load(state, checkpoint_id=tmp_path / "out")
    assert (state["step"], state["cfg"]) == (truth.STEP, truth.CFG)
    assert list(state["optim"]["param_groups"][0]["betas"]) == [0.9, 0.999]
    assert not api.diff(api.catalog(ranks / "fsdp2", at=""), api.catalog(tmp_path / "out", at=""))


def test_the_nested_state_dict_is_what_it_was(ranks, tmp_path):
    """``dcp_to_torch_save`` nests it by the paths in .metadata."""
    api.convert(ranks / "fsdp2", tmp_path / "out")
    for name, folder in {"a": ranks / "fsdp2", "b": tmp_path / "out"}.items():
        dcp_to_torch_save(folder, tmp_path / f"{name}.pt")
    a, b = (torch.load(tmp_path / f"{n}.pt", weights_only=False) for n in "ab")
    assert a["model"].keys() == b["model"].keys()
    assert a["optim"]["param_groups"] == b["optim"]["param_groups"]
    assert a["optim"]["state"].keys() == b["optim"]["state"].keys()
    assert (a["step"], a["cfg"]) == (b["step"], b["cfg"])


def test_renamed_tensors_stay_in_their_dict(tmp_path):
    dcp.save({"model": {"a.w": torch.ones(2)}, "step": 1}, checkpoint_id=tmp_path / "in", no_dist=True)
    source = registry.open_catalog(tmp_path / "in")
    folder = write(DCP, {"b.w": Take(source.entries["a.w"])}, source, tmp_path / "out")
    dcp_to_torch_save(folder, tmp_path / "out.pt")
    found = torch.load(tmp_path / "out.pt", weights_only=False)
    assert {k: list(v) for k, v in found.items() if k == "model"} == {"model": ["b.w"]}
    assert found["step"] == 1
    assert list(registry.open_catalog(folder).entries) == ["b.w"]


def renamed(source: Catalog) -> dict[str, Take]:
    return {f"net.{k}": Take(e) for k, e in source.entries.items()}


def test_the_optimizers_state_follows_its_weights(ranks, tmp_path):
    source = registry.open_catalog(ranks / "fsdp2")
    folder = write(DCP, renamed(source), source, tmp_path / "out")
    wanted = truth.moments()["optim.state.embed.weight.exp_avg"]
    params = ["net.embed.weight", "net.gain"]
    state = {
        "state": {"net.embed.weight": {"exp_avg": torch.zeros(7, 3)}},
        "param_groups": [{"params": 0, "lr": 0}],
    }
    dcp.load({"optim": state}, checkpoint_id=folder)
    assert state["state"]["net.embed.weight"]["exp_avg"].equal(wanted)
    assert set(params) < set(state["param_groups"][0]["params"])
    assert state["param_groups"][0]["lr"] == 0.1
    back = registry.open_catalog(folder)
    again = write(
        DCP, {k.removeprefix("net."): Take(e) for k, e in back.entries.items()}, back, tmp_path / "back"
    )
    assert not api.diff(api.catalog(ranks / "fsdp2", at=""), api.catalog(again, at=""))
    extras = [
        Checkpoint(registry.open_catalog(f)).extras["optim"]["param_groups"] for f in (ranks / "fsdp2", again)
    ]
    assert extras[0] == extras[1]


def test_flattened_state_follows_too(tmp_path):
    """As torchtitan saves it (``flatten_optimizer_state_dict``)."""
    flat = {"state.a.w.exp_avg": torch.ones(2), "param_groups.a.w.lr": 0.1, "state.step": 3}
    dcp.save(
        {"model": {"a.w": torch.ones(2)}, "optimizer": flat}, checkpoint_id=tmp_path / "in", no_dist=True
    )
    source = registry.open_catalog(tmp_path / "in")
    folder = write(DCP, {"b.w": Take(source.entries["a.w"])}, source, tmp_path / "out")
    found = {"state.b.w.exp_avg": torch.zeros(2), "param_groups.b.w.lr": 0, "state.step": 0}
    dcp.load({"optimizer": found}, checkpoint_id=folder)
    assert found["state.b.w.exp_avg"].tolist() == [1, 1]
    assert (found["param_groups.b.w.lr"], found["state.step"]) == (0.1, 3)


def test_state_of_a_weight_that_is_gone_is_not_left_behind(ranks):
    source = registry.open_catalog(ranks / "fsdp2")
    tensors = renamed(source)
    tensors["net.gain"] = Concat((tensors["net.gain"], tensors["net.gain"]))
    del tensors["net.seen"]  # a buffer: it has no state
    with pytest.raises(UsageError, match="can't follow") as caught:
        DCP.lay_out(tensors, source, WriteOptions())
    assert caught.value.problems == ("gain",)


def test_a_name_that_something_else_has_is_refused(tmp_path):
    dcp.save({"w": torch.ones(2), "step": 1}, checkpoint_id=tmp_path / "in", no_dist=True)
    source = registry.open_catalog(tmp_path / "in")
    with pytest.raises(UsageError, match="taken by what else the folder holds") as caught:
        DCP.lay_out({"step": Take(source.entries["w"])}, source, WriteOptions())
    assert caught.value.problems == ("step",)


def test_shards_are_files_of_at_most_that_size(tmp_path):
    tensors = {f"w{i}": torch.full((8,), float(i)) for i in range(4)}
    source = source_of(tensors, tmp_path / "in.safetensors")
    folder = write(DCP, takes(source), source, tmp_path / "out", shard_size=64)
    assert sorted(p.name for p in folder.iterdir()) == [".metadata", "__0_0.distcp", "__1_0.distcp"]
    found = {k: torch.zeros(8) for k in tensors}
    dcp.load(found, checkpoint_id=folder)
    assert all(found[k].equal(v) for k, v in tensors.items())


@pytest.mark.parametrize("count", [1, 2, 4, 7, 9])
def test_every_rank_gets_its_rows(count, ranks, tmp_path):
    """As torch.chunk cuts them: embed.weight has seven rows."""
    api.convert(ranks / "full.pt", tmp_path / "out", to="dcp", ranks=count)
    metadata = pickle.loads((tmp_path / "out" / ".metadata").read_bytes())
    chunks = metadata.state_dict_metadata["embed.weight"].chunks
    assert [c.sizes[0] for c in chunks] == [len(c) for c in torch.zeros(7, 3).chunk(count)]
    files = {i.relative_path for k, i in metadata.storage_data.items() if k.fqn == "embed.weight"}
    assert len(files) == len(chunks)
    found = {k: torch.zeros_like(v) for k, v in truth.weights().items()}
    dcp.load(found, checkpoint_id=tmp_path / "out")
    assert all(found[k].equal(v) for k, v in truth.weights().items())
    assert api.verify(tmp_path / "out")[1] == []


def test_the_command_line_cuts_over_ranks(ranks, tmp_path):
    arguments = ["convert", str(ranks / "dtensor"), str(tmp_path / "out"), "--to", "dcp", "--ranks", "3"]
    done = CliRunner().invoke(cli, arguments)
    assert done.exit_code == 0, done.output
    names = sorted(p.name for p in (tmp_path / "out").glob("__*"))
    assert names == [f"__{rank}_0.distcp" for rank in range(3)]
    assert not api.diff(ranks / "dtensor", tmp_path / "out")


def test_other_formats_are_not_cut_over_ranks(ranks, tmp_path):
    with pytest.raises(UsageError, match="safetensors is not cut over ranks"):
        api.convert(ranks / "full.pt", tmp_path / "out.safetensors", ranks=2)
    with pytest.raises(UsageError, match="--ranks or --shard-size, not both"):
        api.convert(ranks / "full.pt", tmp_path / "out", to="dcp", ranks=2, shard_size=100)


def test_there_and_back_is_the_identity(ranks, tmp_path):
    """Sharded folder -> safetensors -> folder -> safetensors."""
    api.convert(ranks / "grid", tmp_path / "a.safetensors")
    api.convert(tmp_path / "a.safetensors", tmp_path / "dcp", to="dcp")
    api.convert(tmp_path / "dcp", tmp_path / "b.safetensors")
    assert (tmp_path / "a.safetensors").read_bytes() == (tmp_path / "b.safetensors").read_bytes()
    found = load_file(tmp_path / "a.safetensors")
    assert all(found[k].equal(v) for k, v in truth.weights().items())


@pytest.mark.parametrize("kind", ["dtensor", "sharded", "grid-dtensor", "hf", "fsdp1", "full.pt"])
def test_every_layout_becomes_a_folder_that_torch_loads(kind, ranks, tmp_path):
    api.convert(ranks / kind, tmp_path / "out", to="dcp", at="model" if kind == "grid-dtensor" else None)
    wanted = truth.weights()
    found = {k: torch.zeros_like(wanted[k]) for k in Checkpoint(api.catalog(ranks / kind))}
    dcp.load({"model": found} if kind == "fsdp1" else found, checkpoint_id=tmp_path / "out")
    assert len(found) >= len(wanted) - 1
    assert all(v.equal(wanted[k]) for k, v in found.items())


def test_a_cast_folder(ranks, tmp_path):
    api.convert(ranks / "fsdp2", tmp_path / "out", dtype="bf16")
    wanted = truth.weights()
    found = {
        "embed.weight": torch.zeros(7, 3, dtype=torch.bfloat16),
        "seen": torch.zeros(3, dtype=torch.int64),
    }
    dcp.load({"model": found}, checkpoint_id=tmp_path / "out")
    assert found["embed.weight"].equal(wanted["embed.weight"].bfloat16())
    assert found["seen"].equal(wanted["seen"])


@pytest.mark.parametrize("at", [None, "", "optim.state"])
def test_its_receipt_holds(at, ranks, tmp_path):
    """It says where the tensors lie that it is of."""
    api.convert(ranks / "fsdp1", tmp_path / "out", at=at)
    assert api.verify(tmp_path / "out", against=ranks / "fsdp1")[1] == []
    api.convert(ranks / "fsdp1", tmp_path / "out.safetensors", at=at)
    assert api.verify(tmp_path / "out.safetensors", against=ranks / "fsdp1")[1] == []


def test_a_changed_byte_is_found(ranks, tmp_path):
    api.convert(ranks / "fsdp1", tmp_path / "out")
    (file,) = tmp_path.glob("out/__0_0.distcp")
    data = bytearray(file.read_bytes())
    data[704] ^= 1  # a weight's first byte
    file.write_bytes(data)
    assert len(api.verify(tmp_path / "out")[1]) == 1


@pytest.mark.parametrize("under", ["model", "app.model", "net"])
def test_the_state_dict_lies_where_it_is_asked_to(under, ranks, tmp_path):
    """torch's own loaders want a top-level name: https://github.com/pytorch/pytorch/issues/126047."""
    api.convert(ranks / "full.pt", tmp_path / "out", to="dcp", under=under)
    wanted = truth.weights()
    state = nested = {k: torch.zeros_like(v) for k, v in wanted.items()}
    for part in reversed(under.split(".")):
        nested = {part: nested}
    dcp.load(nested, checkpoint_id=tmp_path / "out")
    assert all(state[k].equal(v) for k, v in wanted.items())
    dcp_to_torch_save(tmp_path / "out", tmp_path / "out.pt")
    api.convert(ranks / "full.pt", tmp_path / "direct.pt", under=under)
    for file in ("out.pt", "direct.pt"):
        found = torch.load(tmp_path / file, weights_only=True)
        for part in under.split("."):
            found = found[part]
        assert found.keys() == wanted.keys()
    assert api.verify(tmp_path / "out")[1] == []
    assert api.verify(tmp_path / "direct.pt")[1] == []


@pytest.mark.parametrize("under", ["", "net"])
def test_a_state_dict_moves_and_the_rest_stays(under, ranks, tmp_path):
    api.convert(ranks / "fsdp2", tmp_path / "out", under=under)
    found = Checkpoint(api.catalog(tmp_path / "out", at=under or None))
    assert all(found[k].equal(v) for k, v in truth.weights().items())
    assert "optim.state.gain.exp_avg" in api.catalog(tmp_path / "out", at="").entries
    assert api.verify(tmp_path / "out")[1] == []


def test_safetensors_do_not_nest(ranks, tmp_path):
    with pytest.raises(UsageError, match="safetensors files do not nest"):
        api.convert(ranks / "full.pt", tmp_path / "out.safetensors", under="model")
    with pytest.raises(UsageError, match="--under or --shard-size, not both"):
        api.convert(ranks / "full.pt", tmp_path / "out", under="model", shard_size=200)


def test_a_file_name_is_refused(tmp_path):
    source = source_of({"w": torch.ones(2)}, tmp_path / "in.safetensors")
    with pytest.raises(UsageError, match=r"DCP needs a folder, out\.pt is a file's name"):
        DCP.lay_out(takes(source), source, WriteOptions(name="out.pt"))
