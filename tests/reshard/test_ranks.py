"""DCP folders and FSDP rank files, cut over other ranks with their optimizer, by real torch and for it."""

from __future__ import annotations

import json
import pickle

import pytest
import torch
from formats.dcp import torch_ranks as truth
from formats.dcp.launch import run_ranks
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

from remap import api
from remap.errors import UsageError
from remap.reshard import reshard

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


def chunks(folder, name: str) -> list[int]:
    """Rows of a tensor's chunks, in the order of its ranks."""
    metadata = pickle.loads((folder / ".metadata").read_bytes())
    return [c.sizes[0] for c in metadata.state_dict_metadata[name].chunks]


def moments(folder) -> dict[str, torch.Tensor]:
    return {k: v for k, v in api.open(folder, at="").items() if k.startswith("optim.")}


@pytest.mark.parametrize("kind", ["fsdp2", "fsdp1", "dtensor-optim", "sharded-optim"])
@pytest.mark.parametrize("count", [1, 3])
def test_every_tensor_is_cut_over_the_ranks_and_so_are_its_moments(kind, count, ranks, tmp_path):
    receipt = reshard(ranks / kind, tmp_path / "out", fsdp=count)
    assert len(list((tmp_path / "out").glob("*.distcp"))) == count
    rows = [len(c) for c in torch.zeros(7).chunk(count)]  # embed.weight has seven rows
    assert chunks(tmp_path / "out", "model.embed.weight") == rows
    assert chunks(tmp_path / "out", "optim.state.embed.weight.exp_avg") == rows
    found = api.open(tmp_path / "out")
    assert all(found[k].equal(v) for k, v in truth.weights().items())
    state = moments(tmp_path / "out")
    assert all(state[k].equal(v) for k, v in truth.moments().items())
    assert receipt.left_behind == ([] if kind.startswith("fsdp") else ["step"])
    assert api.verify(tmp_path / "out")[1] == []


def test_real_fsdp2_loads_what_was_cut(ranks, tmp_path):
    reshard(ranks / "fsdp2", tmp_path / "all-of-dcp", fsdp=3)
    reshard(ranks / "sharded-optim", tmp_path / "all-of-rank-files", fsdp=2)
    lines = run_ranks("load", tmp_path / "all-of-dcp", tmp_path / "all-of-rank-files").splitlines()
    assert [json.loads(x)["wrong"] for x in lines if x.startswith("{")] == [[]] * 4


def test_shards_of_the_hugging_face_writer_become_a_folder(ranks, tmp_path):
    reshard(ranks / "hf", tmp_path / "out", fsdp=3)
    assert chunks(tmp_path / "out", "embed.weight") == [3, 3, 1]
    assert not api.diff(ranks / "hf", tmp_path / "out")


def test_what_is_no_tensor_comes_along(ranks, tmp_path):
    reshard(ranks / "fsdp2", tmp_path / "out", fsdp=2)
    for name, folder in {"a": ranks / "fsdp2", "b": tmp_path / "out"}.items():
        dcp_to_torch_save(folder, tmp_path / f"{name}.pt")
    a, b = (torch.load(tmp_path / f"{n}.pt", weights_only=False) for n in "ab")
    assert a["optim"]["param_groups"] == b["optim"]["param_groups"]
    assert (a["step"], a["cfg"]) == (b["step"], b["cfg"])


def test_weights_and_moments_are_cast_where_that_is_asked(ranks, tmp_path):
    reshard(ranks / "fsdp2", tmp_path / "out", fsdp=2, dtype="bf16", optimizer_dtype="f16")
    found = api.open(tmp_path / "out", at="")
    assert str(found.spec("model.embed.weight")) == "bf16[7,3]"
    assert str(found.spec("model.seen")) == "i64[3]"
    assert str(found.spec("optim.state.embed.weight.exp_avg")) == "f16[7,3]"
    assert str(found.spec("optim.state.embed.weight.step")) == "f32[]"


def test_the_optimizer_may_stay_behind(ranks, tmp_path):
    for kind in ("fsdp2", "dtensor-optim"):
        receipt = reshard(ranks / kind, tmp_path / kind, fsdp=2, optimizer=False)
        assert "optim" in receipt.left_behind
        assert moments(tmp_path / kind) == {}
        assert "optim" not in api.open(tmp_path / kind).extras


@pytest.mark.parametrize(
    ("asked", "message"),
    [({"tp": 2, "fsdp": 1}, "--tp is for metaseq"), ({}, "not said over how many ranks")],
)
def test_what_there_is_none_of_is_refused(asked, message, ranks, tmp_path):
    with pytest.raises(UsageError, match=message):
        reshard(ranks / "fsdp2", tmp_path / "out", **asked)
