"""safetensors: what the library writes is read, and the other way round; what is wrong is refused."""

from __future__ import annotations

import json
import struct

import pytest
import torch
from formats.suite import FormatSuite, random_tensors, source_of, write
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from remap.errors import Damaged, Hostile, InputError, NotACheckpoint, UsageError
from remap.expr import Take
from remap.formats import registry, safetensors


class TestSafetensors(FormatSuite):
    name = "safetensors"


def raw_file(path, header: dict | bytes, data: bytes = b""):
    """A file with that header, taken literally."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return path


def f32(start: int, stop: int, shape=None) -> dict:
    return {"dtype": "F32", "shape": shape or [(stop - start) // 4], "data_offsets": [start, stop]}


@pytest.fixture
def shards(tmp_path):
    """A real sharded checkpoint: two files and an index, as transformers lays them out."""
    save_file({"a.weight": torch.ones(4, 4)}, tmp_path / "model-00001-of-00002.safetensors")
    save_file({"b.weight": torch.zeros(2)}, tmp_path / "model-00002-of-00002.safetensors")
    weight_map = {
        "a.weight": "model-00001-of-00002.safetensors",
        "b.weight": "model-00002-of-00002.safetensors",
    }
    index = {"metadata": {"total_size": 72}, "weight_map": weight_map}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    return tmp_path


def test_the_library_reads_what_is_written(tmp_path):
    tensors = random_tensors()
    source = source_of(tensors, tmp_path / "in.safetensors")
    root = write(
        safetensors.FORMAT, {k: Take(e) for k, e in source.entries.items()}, source, tmp_path / "out"
    )
    found = load_file(root)
    assert found.keys() == tensors.keys()
    for key, value in tensors.items():
        assert found[key].reshape(-1).view(torch.uint8).equal(value.reshape(-1).view(torch.uint8))


def test_metadata_says_pt_and_keeps_what_was_there(tmp_path):
    save_file({"w": torch.ones(2)}, tmp_path / "in.safetensors", metadata={"license": "mit"})
    source = registry.open_catalog(tmp_path / "in.safetensors")
    root = write(safetensors.FORMAT, {"v": Take(source.entries["w"])}, source, tmp_path / "out")
    with safe_open(root, "pt") as f:
        assert f.metadata() == {"format": "pt", "license": "mit"}


def test_every_tensor_is_aligned_to_its_type(tmp_path):
    tensors = {
        "a": torch.ones(3, dtype=torch.uint8),
        "b": torch.ones(3),
        "c": torch.ones(1, dtype=torch.int64),
    }
    source = source_of(tensors, tmp_path / "in.safetensors")
    root = write(
        safetensors.FORMAT, {k: Take(e) for k, e in source.entries.items()}, source, tmp_path / "out"
    )
    for e in safetensors.FORMAT.open(root).entries.values():
        assert e.location.offset % e.spec.dtype.itemsize == 0


def test_shards_hold_at_most_the_size_and_the_index_names_them(tmp_path):
    tensors = {f"{i}.weight": torch.full((100,), float(i)) for i in range(5)}
    source = source_of(tensors, tmp_path / "in.safetensors")
    takes = {k: Take(e) for k, e in source.entries.items()}
    root = write(safetensors.FORMAT, takes, source, tmp_path / "out", shard_size=800)
    assert root.name == "model.safetensors.index.json"
    index = json.loads(root.read_text())
    assert index["metadata"]["total_size"] == 5 * 400
    assert sorted(set(index["weight_map"].values())) == [
        f"model-0000{i}-of-00003.safetensors" for i in (1, 2, 3)
    ]
    for key, name in index["weight_map"].items():
        assert load_file(tmp_path / "out" / name)[key].equal(tensors[key])


def test_the_index_is_written_last(tmp_path):
    source = source_of({"a": torch.ones(100), "b": torch.ones(100)}, tmp_path / "in.safetensors")
    takes = {k: Take(e) for k, e in source.entries.items()}
    files = safetensors.FORMAT.lay_out(takes, source, safetensors.WriteOptions(shard_size=400))
    assert [f.name for f in files][-1] == "model.safetensors.index.json"


def test_a_tensor_larger_than_a_shard_is_refused(tmp_path):
    source = source_of({"big.weight": torch.ones(1000)}, tmp_path / "in.safetensors")
    takes = {k: Take(e) for k, e in source.entries.items()}
    with pytest.raises(UsageError, match=r"larger than --shard-size 100[\s\S]*big\.weight: 4000 bytes"):
        safetensors.FORMAT.lay_out(takes, source, safetensors.WriteOptions(shard_size=100))


def test_shards_without_an_index_are_one_checkpoint(shards):
    (shards / "model.safetensors.index.json").unlink()
    assert set(registry.open_catalog(shards).entries) == {"a.weight", "b.weight"}


def test_a_missing_shard_is_named(shards):
    (shards / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(Damaged, match=r"1 of 2 shards are missing[\s\S]*model-00002-of-00002"):
        registry.open_catalog(shards)


def test_a_missing_shard_is_named_without_an_index_too(shards):
    (shards / "model.safetensors.index.json").unlink()
    (shards / "model-00001-of-00002.safetensors").unlink()
    with pytest.raises(Damaged, match=r"1 of 2 shards are missing[\s\S]*model-00001-of-00002"):
        registry.open_catalog(shards)


def test_a_key_that_only_the_index_has_is_named(shards):
    _change_index(shards, lambda m: m.update({"ghost": "model-00001-of-00002.safetensors"}))
    with pytest.raises(
        Damaged, match=r"ghost: the index says model-00001-of-00002\.safetensors, no shard has it"
    ):
        registry.open_catalog(shards)


def test_a_key_that_only_a_shard_has_is_named(shards):
    save_file({"b.weight": torch.zeros(2), "c": torch.ones(1)}, shards / "model-00002-of-00002.safetensors")
    with pytest.raises(Damaged, match=r"c: in model-00002-of-00002\.safetensors, not in the index"):
        registry.open_catalog(shards)


@pytest.mark.parametrize(
    "name",
    ["../secret.safetensors", "/etc/x.safetensors", "..\\x.safetensors", "C:\\x", "a/../b", "a//b", "./a"],
)
def test_an_index_that_points_outside_its_folder_is_refused(shards, name):
    _change_index(shards, lambda m: m.update({"a.weight": name}))
    with pytest.raises(Hostile, match="outside its folder"):
        registry.open_catalog(shards)


def test_shards_may_lie_below_the_index(shards):
    (shards / "part").mkdir()
    (shards / "model-00002-of-00002.safetensors").rename(shards / "part/two.safetensors")
    _change_index(shards, lambda m: m.update({"b.weight": "part/two.safetensors"}))
    assert set(registry.open_catalog(shards).entries) == {"a.weight", "b.weight"}


def _change_index(folder, change):
    path = folder / "model.safetensors.index.json"
    index = json.loads(path.read_text())
    change(index["weight_map"])
    path.write_text(json.dumps(index))


def test_two_checkpoints_in_one_folder_are_not_chosen_between(tmp_path):
    save_file({"a": torch.ones(1)}, tmp_path / "model.safetensors")
    save_file({"b": torch.ones(1)}, tmp_path / "other.safetensors")
    with pytest.raises(
        InputError, match=r"2 checkpoints are here[\s\S]*model\.safetensors[\s\S]*other\.safetensors"
    ):
        registry.open_catalog(tmp_path)
    assert set(registry.open_catalog(tmp_path / "other.safetensors").entries) == {"b"}


@pytest.mark.parametrize(
    ("header", "data", "error", "message"),
    [
        (b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"a":{}}', bytes(4), Hostile, "'a' twice"),
        (b' {"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}', bytes(4), Hostile, "begin with a brace"),
        ({"a": f32(0, 4), "b": f32(8, 12)}, bytes(12), Hostile, "b: the tensor leaves a hole"),
        ({"a": f32(0, 8), "b": f32(4, 12)}, bytes(12), Hostile, "b: the tensor overlaps"),
        ({"a": f32(0, 8)}, bytes(4), Damaged, "is truncated: .* expected"),
        ({"a": f32(0, 8)}, bytes(12), Damaged, "bytes that no tensor owns"),
        (
            {"a": f32(0, 8, [3])},
            bytes(8),
            Damaged,
            r"shape \[3\] of float32 takes 12 bytes, data_offsets give 8",
        ),
        ({"a": {**f32(0, 8), "dtype": "F7"}}, bytes(8), Damaged, "element type 'F7' is unknown"),
        ({"a": {**f32(0, 8), "shape": [-2]}}, bytes(8), Damaged, "shape"),
        ({"a": {"dtype": "F32"}}, b"", Damaged, "the header's entry is wrong"),
        (b'{"a": [', b"", Damaged, "not JSON"),
        ({}, b"", Damaged, "holds no tensors"),
    ],
)
def test_a_wrong_header_is_refused_and_says_where(tmp_path, header, data, error, message):
    path = raw_file(tmp_path / "x.safetensors", header, data)
    with pytest.raises(error, match=message):
        registry.open_catalog(path)


def test_a_header_longer_than_the_file_is_damage(tmp_path):
    path = tmp_path / "x.safetensors"
    path.write_bytes(struct.pack("<Q", 10_000) + b'{"a"')
    with pytest.raises(Damaged, match="the header should take 10000 bytes, the file has 12"):
        registry.open_catalog(path)


def test_a_shard_that_is_a_git_lfs_pointer_is_named(shards):
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:abc\nsize 12\n"
    (shards / "model-00002-of-00002.safetensors").write_text(pointer)
    with pytest.raises(NotACheckpoint, match=r"model-00002-of-00002\.safetensors: .*Git LFS pointer"):
        registry.open_catalog(shards)
