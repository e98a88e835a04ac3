"""What HuggingFaceStorageWriter left on four ranks, read equal; torch's own merge fails on some of it."""

from __future__ import annotations

import json
import shutil

import pytest
import torch
from formats.dcp import torch_ranks as truth
from safetensors.torch import load_file, save_file

from remap import api
from remap.checkpoint import Checkpoint
from remap.errors import Damaged, InputError, UsageError
from remap.formats import registry

SHARD = "shard-{:05}-model-00001-of-00001.safetensors"


@pytest.fixture
def copy(ranks, tmp_path):
    """The four shards, to be tampered with."""
    return shutil.copytree(ranks / "hf", tmp_path / "hf")


def wanted() -> dict[str, torch.Tensor]:
    return {k: v for k, v in truth.weights().items() if k != "output.weight"}  # the writer refuses ties


@pytest.mark.parametrize("name", ["", SHARD.format(1), SHARD.format(3)])
def test_parts_are_joined_from_any_of_the_files(name, ranks):
    found = Checkpoint(registry.open_catalog(ranks / "hf" / name))
    assert found.catalog.format == "dcp-safetensors"
    assert len(found.catalog.files) == 4
    assert found.keys() == wanted().keys()
    assert all(found[k].dtype == v.dtype and found[k].equal(v) for k, v in wanted().items())


def test_the_merge_is_right_where_torchs_own_is_not(ranks, tmp_path):
    """torch 2.13's consolidation writes 0.0 for a 0-dim tensor, and can't do integers."""
    api.convert(ranks / "hf", tmp_path / "out.safetensors")
    merged = load_file(tmp_path / "out.safetensors")
    assert merged["scale"].item() == 2.5
    assert merged["seen"].tolist() == [41, 42, 43]


def sharding(**offsets: list[int]) -> dict[str, str]:
    return {"DCP_SHARDING_INFO": json.dumps({k: {"saved_offsets": v} for k, v in offsets.items()})}


def test_a_missing_rank_is_named(copy):
    (copy / SHARD.format(2)).unlink()
    with pytest.raises(Damaged, match=r"shards of 1 ranks are missing\n  rank 1\n"):
        registry.open_catalog(copy)


def test_a_rank_s_number_is_not_counted_up_to(copy):
    (copy / SHARD.format(4)).rename(copy / SHARD.format(4).replace("00004", "99999999999", 1))
    with pytest.raises(Damaged, match=r"shards of 99999999995 ranks are missing\n  rank 3\n  rank 4\n"):
        registry.open_catalog(copy)


def test_nothing_says_how_many_there_were(copy):
    """The last rank's file can't be missed; a warning says so."""
    assert "4 files are here" in registry.open_catalog(copy).warnings[0]


def test_shards_of_two_saves_are_refused(copy):
    save_file({"w": torch.ones(1)}, copy / "shard-00001-model-00001-of-00002.safetensors")
    with pytest.raises(InputError, match="shards of two saves"):
        registry.open_catalog(copy)


def test_parts_that_do_not_fit_together_are_named(copy):
    save_file({"gain": torch.ones(1, dtype=torch.int32)}, copy / SHARD.format(5), metadata=sharding(gain=[1]))
    with pytest.raises(Damaged, match="differ in element type") as caught:
        registry.open_catalog(copy)
    assert any("i32[1] at [1]" in p for p in caught.value.problems)


def test_overlapping_parts_are_named(copy):
    save_file({"gain": torch.ones(2)}, copy / SHARD.format(5), metadata=sharding(gain=[0]))
    with pytest.raises(Damaged, match="overlap"):
        registry.open_catalog(copy)


def test_a_header_that_can_not_be_read_is_refused(copy):
    save_file({"w": torch.ones(2)}, copy / SHARD.format(5), metadata={"DCP_SHARDING_INFO": "[1]"})
    with pytest.raises(Damaged, match="DCP_SHARDING_INFO in its header can't be read"):
        registry.open_catalog(copy)


def test_they_are_not_written(copy, tmp_path):
    with pytest.raises(UsageError, match="read only"):
        api.convert(copy, tmp_path / "out")


def test_a_folder_of_whole_tensors_is_plain_safetensors(tmp_path):
    save_file({"w": torch.ones(2)}, tmp_path / "model-00001-of-00001.safetensors")
    assert registry.open_catalog(tmp_path).format == "safetensors"
