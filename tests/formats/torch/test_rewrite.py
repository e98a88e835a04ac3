"""Renaming and dropping in torch files: what moves, what stays, and the way back."""

from __future__ import annotations

import argparse
import collections
import struct
import zipfile

import pytest
import torch
from formats.torch.samples import assert_same, state_dict, takes, write
from hypothesis import given, settings
from hypothesis import strategies as st

from remap.errors import Damaged, UsageError
from remap.formats.torch.file import emit, read, rewrite
from remap.formats.torch.writing.names import follow_modules


def save(value, path, **options):
    torch.save(value, path, **options)
    return path


def there_and_back(path, renames, folder):
    """The renamed file, and the file renamed back, as paths."""
    there = write(rewrite(read(path), path.name, renames), folder / "there")
    file = read(there, at=read(path).at)
    back = write(rewrite(file, path.name, {new: old for old, new in renames.items()}), folder / "back")
    return there, back


@pytest.mark.parametrize("protocol", [1, 2, 3, 4, 5])
def test_the_way_back_gives_the_same_file(tmp_path, protocol):
    tensors = state_dict()
    path = save(
        {"model": tensors, "ema": {"bias": 1}, "bias": "bias"}, tmp_path / "a.pt", pickle_protocol=protocol
    )
    renames = {k: f"new.{k}.ü" for k in tensors}
    there, back = there_and_back(path, renames, tmp_path)
    assert back.read_bytes() == path.read_bytes()
    loaded = torch.load(there, weights_only=False)
    assert_same(loaded["model"], {renames[k]: v for k, v in tensors.items()})
    assert (loaded["ema"], loaded["bias"]) == ({"bias": 1}, "bias")


def test_without_renames_nothing_changes(tmp_path):
    path = save(state_dict(), tmp_path / "a.pt")
    assert write(rewrite(read(path), "b.pt", {}), tmp_path / "out").read_bytes() == path.read_bytes()


def test_a_key_that_is_a_storage_key_too(tmp_path):
    """CPython shares short strings: the key "0" is the memo slot that storage 0 uses."""
    tensors = {"0": torch.ones(1), "cpu": torch.zeros(2), "storage": torch.full((3,), 2.0)}
    path = save(tensors, tmp_path / "a.pt")
    renames = {"0": "cpu", "cpu": "storage", "storage": "0"}
    there, back = there_and_back(path, renames, tmp_path)
    assert_same(torch.load(there, weights_only=True), {renames[k]: v for k, v in tensors.items()})
    assert back.read_bytes() == path.read_bytes()


def test_names_elsewhere_that_only_look_alike_stay(tmp_path):
    key = "layers.0.weight"
    value = {"module": {key: torch.ones(2)}, "ema_names": [key], "args": argparse.Namespace(tag=key)}
    path = save(value, tmp_path / "a.pt")
    there, back = there_and_back(path, {key: "h.0.w"}, tmp_path)
    loaded = torch.load(there, weights_only=False)
    assert list(loaded["module"]) == ["h.0.w"]
    assert (loaded["ema_names"], loaded["args"].tag) == ([key], key)
    assert back.read_bytes() == path.read_bytes()


def test_versions_of_modules_follow(tmp_path):
    net = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2))
    path = save(net.state_dict(), tmp_path / "a.pt")
    renames = {k: f"body.{k}" for k in net.state_dict()}
    there, back = there_and_back(path, renames, tmp_path)
    assert torch.load(there, weights_only=True)._metadata == {
        "": {"version": 1},
        "body.0": {"version": 1},
        "body.1": {"version": 2},
    }
    assert back.read_bytes() == path.read_bytes()


def test_what_deepspeed_lists_by_key_follows(tmp_path):
    key = "layers.0.weight"
    value = {
        "module": {key: torch.ones(2)},
        "param_shapes": [collections.OrderedDict({key: torch.Size([2])})],
        "buffer_names": [key, "other"],
        "shared_params": {key: key},
    }
    there, back = there_and_back(save(value, tmp_path / "a.pt"), {key: "h.w"}, tmp_path)
    loaded = torch.load(there, weights_only=True)
    assert loaded["param_shapes"] == [{"h.w": torch.Size([2])}]
    assert loaded["buffer_names"] == ["h.w", "other"]
    assert loaded["shared_params"] == {"h.w": "h.w"}
    assert back.read_bytes() == (tmp_path / "a.pt").read_bytes()


KEYS = st.lists(
    st.sampled_from(["0", "cpu", "a", "a.b", "b.w", "storage", "x.y.z", "ü"]), min_size=1, unique=True
)


@given(keys=KEYS, data=st.data())
@settings(max_examples=100, deadline=None)
def test_any_rename_is_right_and_can_be_undone(tmp_path_factory, keys, data):
    folder = tmp_path_factory.mktemp("rename")
    new = data.draw(
        st.lists(
            st.sampled_from([*keys, "n.1", "n.2", "cpu", "1"]),
            min_size=len(keys),
            max_size=len(keys),
            unique=True,
        )
    )
    tensors = {k: torch.full((i + 1,), float(i)) for i, k in enumerate(keys)}
    path = save({"model": tensors, "names": list(keys), "again": dict.fromkeys(keys, 1)}, folder / "a.pt")
    renames = dict(zip(keys, new, strict=True))
    there, back = there_and_back(path, renames, folder)
    loaded = torch.load(there, weights_only=True)
    assert_same(loaded["model"], {renames[k]: v for k, v in tensors.items()})
    assert (loaded["names"], list(loaded["again"])) == (list(keys), list(keys))
    assert back.read_bytes() == path.read_bytes()


def test_modules_follow_where_all_their_tensors_do():
    renames = {"a.w": "x.a.w", "a.b": "x.a.b", "c.w": "y.w", "c.v": "z.v", "d.w": "d.w"}
    assert follow_modules(["", "a", "c", "d", "e"], renames) == {"a": "x.a"}


def test_two_modules_never_get_one_name():
    assert follow_modules(["a", "b"], {"a.w": "b.w", "c.w": "a.w"}) == {}


def test_collisions_are_refused(tmp_path):
    file = read(save({"a": torch.ones(1), "b": torch.ones(1), "step": 3}, tmp_path / "a.pt"))
    with pytest.raises(UsageError, match="a -> b|b -> b|b, which a becomes"):
        rewrite(file, "b.pt", {"a": "b"})
    with pytest.raises(UsageError, match="step, which is not a tensor"):
        rewrite(file, "b.pt", {"a": "step"})
    with pytest.raises(UsageError, match="no such keys"):
        rewrite(file, "b.pt", {"x": "y"})


def test_dropped_keys_go_with_their_bytes_and_the_rest_stays(tmp_path):
    tensors = state_dict()
    value = {
        "model": tensors,
        "optimizer": {"state": {0: {"exp_avg": torch.full((4,), 7.0)}}},
        "args": argparse.Namespace(lr=0.1, names=["a", "a"]),
    }
    path = save(value, tmp_path / "a.pt")
    drop = {k for k in tensors if not k.startswith("types")}
    out = write(rewrite(read(path), "b.pt", {"types.bool": "mask"}, drop), tmp_path / "out")
    loaded = torch.load(out, weights_only=False)
    assert_same(
        loaded["model"], {k.replace("types.bool", "mask"): v for k, v in tensors.items() if k not in drop}
    )
    assert loaded["optimizer"]["state"][0]["exp_avg"].tolist() == [7.0] * 4
    assert vars(loaded["args"]) == vars(value["args"])
    stored = [n for n in zipfile.ZipFile(out).namelist() if "/data/" in n]
    assert len(stored) == len(tensors) - len(drop) + 1


def test_metadata_stays_where_something_is_dropped(tmp_path):
    net = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2))
    path = save(net.state_dict(), tmp_path / "a.pt")
    out = write(rewrite(read(path), "b.pt", {}, {"0.bias"}), tmp_path / "out")
    loaded = torch.load(out, weights_only=True)
    assert "0.bias" not in loaded
    assert loaded._metadata["1"] == {"version": 2}


def test_a_wrong_checksum_is_never_written_anew(tmp_path):
    """torch does not look at checksums, so a rename would make good of a damaged file."""
    path = save({"a": torch.arange(10.0)[2:5], "o": {"b": torch.ones(3)}}, tmp_path / "a.pt")
    data = bytearray(path.read_bytes())
    data[data.index(struct.pack("<f", 7.0))] ^= 1
    path.write_bytes(data)
    with pytest.raises(Damaged):
        write(rewrite(read(path), "b.pt", {"a": "b"}), tmp_path / "out")


def test_an_emitted_file_can_be_renamed_and_back(tmp_path):
    source = read(save(state_dict(), tmp_path / "a.pt"))
    path = write(emit("e.pt", takes(source.entries)), tmp_path / "e")
    _, back = there_and_back(path, {k: f"m.{k}" for k in source.entries}, tmp_path)
    assert back.read_bytes() == path.read_bytes()


def test_a_zip_of_another_tool_comes_out_in_torchs_layout(tmp_path):
    path = save({"w": torch.ones(3)}, tmp_path / "a.pt")
    source = zipfile.ZipFile(path)
    with zipfile.ZipFile(tmp_path / "z.pt", "w") as out:
        for info in source.infolist():
            out.writestr(info.filename, source.read(info))
    written = write(rewrite(read(tmp_path / "z.pt"), "b.pt", {"w": "v"}), tmp_path / "out")
    assert torch.load(written, weights_only=True, mmap=True)["v"].tolist() == [1, 1, 1]
