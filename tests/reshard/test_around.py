"""What lies around the tensors: names, configuration, metadata, objects. Numbers in comments
are faults of metaseq's scripts: see ``test_faults``."""

from __future__ import annotations

import argparse

import pytest
import torch
from formats.metaseq.samples import (
    FOREIGN,
    edit,
    load,
    make,
    same,
)
from reshard.cutting import (
    assert_equal,
    opened,
)

from remap.errors import DestinationError, UsageError
from remap.formats import registry
from remap.formats.torch import file as torch_file
from remap.pickles.graph import lookup, mapping_pairs, plain
from remap.reshard import reshard


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
    old = make(tmp_path / "old", parts=1, part_in_name=False)
    reshard(old.first, tmp_path / "old2", fsdp=2)
    suffix = load(tmp_path / "old2" / "checkpoint_last-shard1.pt")["cfg"]["checkpoint"]["checkpoint_suffix"]
    assert suffix == ""  # names have no part
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


def test_namespaces_stay_namespaces(tmp_path):
    truth = make(tmp_path / "source")
    reshard(truth.first, tmp_path / "out", fsdp=1)
    assert type(load(tmp_path / "out" / truth.first.name)["cfg"]["model"]) is argparse.Namespace


def test_what_is_no_tensor_in_a_state_dict_stays(tmp_path):
    truth = make(tmp_path / "source", parts=1)
    for path in truth.files.values():
        edit(path, lambda s: s["model"].update({"decoder._extra_state": {"scale": 2}}))
    reshard(truth.first, tmp_path / "out", unflatten=True)
    model = load(tmp_path / "out" / "reshard-model_part-0.pt")["model"]
    assert model["decoder._extra_state"] == {"scale": 2}


def test_verify_compares_with_the_source(tmp_path):
    from remap import verify

    truth = make(tmp_path / "source")
    reshard(truth.first, tmp_path / "out", tp=1, fsdp=2)
    assert verify(tmp_path / "out", against=truth.first)[1] == []
    for path in truth.files.values():
        edit(path, lambda s: s["model"]["decoder.version"].add_(1))
    assert [p.split(":")[0] for p in verify(tmp_path / "out", against=truth.first)[1]] == ["decoder.version"]


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
