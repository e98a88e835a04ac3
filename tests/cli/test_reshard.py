"""``remap reshard``, and other commands on metaseq checkpoints."""

from __future__ import annotations

import json
import shutil

import pytest
import torch
from formats.metaseq.samples import edit, load, make, make_unflattened
from safetensors.torch import load_file, save_file


def test_reshard_verify_and_diff(remap, tmp_path):
    truth = make(tmp_path / "raw")
    done = remap("reshard", truth.first, tmp_path / "out", "--fsdp", 2, "--tp", 1)
    assert done.code == 0
    assert done.out.startswith(f"{tmp_path / 'out'}: 2 files")
    assert remap("verify", tmp_path / "out").code == 0
    same = remap("diff", truth.first, tmp_path / "out")
    assert (same.code, "bit for bit" in same.out) == (0, True)


@pytest.mark.parametrize("option", ["--dtype", "--optimizer-dtype"])
def test_floats_are_cut_to_no_type_without_fractions(remap, tmp_path, option):
    truth = make(tmp_path / "raw")
    done = remap("reshard", truth.first, tmp_path / "out", "--fsdp", 1, option, "int8")
    assert (done.code, "weights are not cast to int8" in done.err) == (2, True)
    assert not (tmp_path / "out").exists()


def test_verify_finds_a_moment_that_changed(remap, tmp_path):
    truth = make(tmp_path / "raw")
    remap("reshard", truth.first, tmp_path / "out", "--fsdp", 2)

    path = tmp_path / "out" / "checkpoint_last-model_part-1-shard1.pt"
    edit(path, lambda s: s["last_optimizer_state"]["state"][0]["exp_avg"].add_(1))
    done = remap("verify", tmp_path / "out")
    assert done.code == 4
    assert f"{path.name}:last_optimizer_state.state.0.exp_avg" in done.err


def test_convert_writes_everything_merged_and_unflattened(remap, tmp_path):
    truth = make(tmp_path / "raw")
    done = remap("convert", truth.files[1, 2], tmp_path / "merged.safetensors")
    assert done.code == 0
    found = load_file(tmp_path / "merged.safetensors")
    assert found.keys() == truth.weights.keys()
    assert all(found[k].equal(v) for k, v in truth.weights.items())


def test_convert_writes_a_singleton_in_the_likeness_of_the_first_file(remap, tmp_path):
    truth = make(tmp_path / "raw")
    assert remap("convert", truth.first, tmp_path / "out", "--to", "metaseq").code == 0
    assert remap("diff", tmp_path / "out" / "reshard.pt", truth.first).code == 0
    extras = json.loads(remap("inspect", tmp_path / "out", "--json").out)
    assert extras["format"] == "metaseq"


def test_whole_tensors_are_not_cut_and_the_way_is_said(remap, tmp_path):
    save_file({"a": torch.ones(2)}, tmp_path / "model.safetensors")
    done = remap("reshard", tmp_path / "model.safetensors", tmp_path / "out", "--fsdp", 2)
    assert done.code == 3
    assert "safetensors file or folder of shards: whole tensors, which are not cut" in done.err
    assert "remap convert SRC DST --to dcp --ranks N" in done.err


def test_a_json_receipt_names_every_tensor_of_every_file(remap, tmp_path):
    truth = make(tmp_path / "raw", parts=1, shards=1, layers=1, optimizer=False)
    receipt = json.loads(remap("reshard", truth.first, tmp_path / "out", "--fsdp", 2, "--json").out)
    assert sorted(receipt["tensors"]) == [
        f"checkpoint_last-model_part-0-shard{i}.pt:model.{k}"
        for i in range(2)
        for k in ("decoder.layers.0.flat_param_0", "decoder.version", "flat_param_0")
    ]
    assert receipt["left_behind"] == []


def test_the_optimizer_left_behind_is_mentioned(remap, tmp_path):
    truth = make(tmp_path / "raw", parts=1, layers=1)
    done = remap("reshard", truth.first, tmp_path / "out", "--fsdp", 2, "--no-optimizer")
    assert "note: not carried along: last_optimizer_state" in done.err


def test_convert_says_that_the_optimizer_stays_behind(remap, tmp_path):
    truth = make(tmp_path / "raw")
    done = remap("convert", truth.first, tmp_path / "out", "--to", "metaseq")
    assert "note: not carried along: last_optimizer_state, shard_metadata" in done.err


def test_a_singleton_keeps_what_else_it_holds_when_it_is_renamed(remap, tmp_path):
    truth = make_unflattened(tmp_path / "raw", parts=1)
    source = tmp_path / "reshard.pt"
    shutil.copy(truth.first, source)
    done = remap("convert", source, tmp_path / "out.pt", "--dtype", "f16")
    assert (done.code, done.err) == (0, "")
    wanted, found = load(source), load(tmp_path / "out.pt")
    assert list(found) == list(wanted)
    assert found["cfg"]["model"].data == "/path"
    assert found["model"]["decoder.version"].dtype == torch.float16
