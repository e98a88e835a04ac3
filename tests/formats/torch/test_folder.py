"""The torch format as a whole: files, folders of shards, and which file is written how."""

from __future__ import annotations

import json

import pytest
import torch
from formats.suite import FormatSuite
from formats.torch.samples import assert_same, state_dict, takes

from remap.errors import Damaged, UsageError
from remap.expr import Reshape, Take
from remap.formats.base import WriteOptions
from remap.formats.torch.folder import FORMAT
from remap.stream import write_files


class TestTorch(FormatSuite):
    name = "torch"


def save(value, path):
    path.parent.mkdir(exist_ok=True)
    torch.save(value, path)
    return path


def shards(folder, index=True):
    """Two shards as transformers writes them."""
    tensors = {"a.w": torch.ones(2), "b.w": torch.zeros(3), "c.w": torch.full((1,), 5.0)}
    names = ["pytorch_model-00001-of-00002.bin", "pytorch_model-00002-of-00002.bin"]
    save({k: tensors[k] for k in ("a.w", "b.w")}, folder / names[0])
    save({"c.w": tensors["c.w"]}, folder / names[1])
    if index:
        weight_map = {"a.w": names[0], "b.w": names[0], "c.w": names[1]}
        text = json.dumps({"metadata": {"total_size": 24}, "weight_map": weight_map})
        (folder / "pytorch_model.bin.index.json").write_text(text)
    return tensors


@pytest.mark.parametrize("index", [True, False])
def test_a_folder_of_shards_is_one_checkpoint(tmp_path, index):
    folder = tmp_path / "model"
    tensors = shards(folder, index)
    (root,) = FORMAT.find(folder)
    assert set(FORMAT.open(root).entries) == set(tensors)
    assert list(FORMAT.find(folder / "pytorch_model-00002-of-00002.bin")) == [root]


@pytest.mark.parametrize("index", [True, False])
def test_a_missing_shard_is_named(tmp_path, index):
    folder = tmp_path / "model"
    shards(folder, index)
    (folder / "pytorch_model-00002-of-00002.bin").unlink()
    (root,) = FORMAT.find(folder)
    with pytest.raises(Damaged, match="pytorch_model-00002-of-00002.bin"):
        FORMAT.open(root)


def test_an_index_that_disagrees_is_refused(tmp_path):
    shards(tmp_path)
    index = tmp_path / "pytorch_model.bin.index.json"
    document = json.loads(index.read_text())
    del document["weight_map"]["b.w"]
    index.write_text(json.dumps(document))
    with pytest.raises(Damaged, match=r"b\.w: in pytorch_model-00001-of-00002.bin, not in the index"):
        FORMAT.open(index)


def test_one_key_in_two_shards_is_refused(tmp_path):
    shards(tmp_path, index=False)
    save({"a.w": torch.ones(2)}, tmp_path / "pytorch_model-00002-of-00002.bin")
    with pytest.raises(Damaged, match="two shards"):
        FORMAT.open(tmp_path / "pytorch_model-00001-of-00002.bin")


def test_what_trainers_leave_beside_a_model_is_not_a_checkpoint(tmp_path):
    for name in ("optimizer.pt", "scheduler.pt", "rng_state_0.pth", "training_args.bin"):
        save({"x": torch.ones(1)}, tmp_path / name)
    path = save({"w": torch.ones(1)}, tmp_path / "pytorch_model.bin")
    assert list(FORMAT.find(tmp_path)) == [path]


def test_shards_are_written_with_their_index(tmp_path):
    tensors = {f"{i}.w": torch.full((100,), float(i)) for i in range(5)}
    source = FORMAT.open(save(tensors, tmp_path / "a.pt"))
    files = FORMAT.lay_out(takes(source.entries), source, WriteOptions(shard_size=800))
    assert [f.name for f in files] == [
        *(f"pytorch_model-0000{i}-of-00003.bin" for i in (1, 2, 3)),
        "pytorch_model.bin.index.json",
    ]
    (tmp_path / "out").mkdir()
    write_files(files, tmp_path / "out")
    loaded = {}
    for file in files[:-1]:
        loaded |= torch.load(tmp_path / "out" / file.name, weights_only=True)
    assert_same(loaded, tensors)
    (root,) = FORMAT.find(tmp_path / "out")
    assert set(FORMAT.open(root).entries) == set(tensors)


def lay_out(source, tensors, folder, name="out.pt"):
    folder.mkdir()
    (out,) = FORMAT.lay_out(tensors, source, WriteOptions(name=name))
    write_files([out], folder)
    return out, torch.load(folder / name, weights_only=True)


def test_a_renamed_file_carries_the_rest_along(tmp_path):
    value = {"model": {"w": torch.ones(2)}, "optimizer": {"m": torch.zeros(2)}, "epoch": 3}
    source = FORMAT.open(save(value, tmp_path / "a.pt"))
    assert source.extras == ("optimizer", "epoch")
    out, loaded = lay_out(source, {"v": Take(source.entries["w"])}, tmp_path / "out")
    assert out.carries
    assert list(loaded) == ["model", "optimizer", "epoch"]
    assert list(loaded["model"]) == ["v"]


def test_a_computed_tensor_takes_its_place_and_the_rest_is_carried_along(tmp_path):
    value = {"model": {"w": torch.arange(4.0), "gone": torch.ones(9), "step": 7}, "epoch": 3}
    source = FORMAT.open(save(value, tmp_path / "a.pt"))
    expr = Reshape(Take(source.entries["w"]), (2, 2))
    out, loaded = lay_out(source, {"v": expr, "again": Take(source.entries["w"])}, tmp_path / "out")
    assert out.carries
    assert loaded["epoch"] == 3
    assert loaded["model"]["v"].tolist() == [[0, 1], [2, 3]]
    assert loaded["model"]["again"].tolist() == [0, 1, 2, 3]
    assert loaded["model"]["step"] == 7
    assert "gone" not in loaded["model"]


def test_a_plain_state_dict_is_written_for_other_sources(tmp_path):
    shards(tmp_path / "in")
    source = FORMAT.open(tmp_path / "in" / "pytorch_model.bin.index.json")
    out, loaded = lay_out(source, takes(source.entries), tmp_path / "out")
    assert not out.carries
    assert set(loaded) == {"a.w", "b.w", "c.w"}


def test_everything_comes_back_from_a_renamed_file(tmp_path):
    tensors = state_dict()
    source = FORMAT.open(save(tensors, tmp_path / "a.pt"))
    renamed = {f"x.{k}": Take(e) for k, e in source.entries.items()}
    _, loaded = lay_out(source, renamed, tmp_path / "out")
    assert_same(loaded, {f"x.{k}": v for k, v in tensors.items()})


def test_nothing_is_not_written(tmp_path):
    source = FORMAT.open(save({"w": torch.ones(1)}, tmp_path / "a.pt"))
    with pytest.raises(UsageError, match="no tensor"):
        FORMAT.lay_out({}, source, WriteOptions())
