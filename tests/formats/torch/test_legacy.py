"""Files of torch before 1.6: read as torch reads them, written as zips with all that they hold."""

from __future__ import annotations

import argparse
import struct

import pytest
import torch
from formats.torch.samples import assert_same, state_dict, write

from remap.errors import Damaged, Hostile, NotACheckpoint
from remap.expr import Take
from remap.expr.blocks import evaluate
from remap.formats.torch.file import is_torch, read, rewrite


def save(value, path, protocol=2):
    torch.save(value, path, _use_new_zipfile_serialization=False, pickle_protocol=protocol)
    return path


@pytest.mark.parametrize("protocol", [1, 2, 4])
def test_reads_what_torch_saved(tmp_path, protocol):
    tensors = state_dict()
    path = save({"model": tensors, "epoch": 3}, tmp_path / "a.pt", protocol)
    file = read(path)
    assert is_torch(path)
    assert file.at == "model"
    assert_same({k: evaluate(Take(e)) for k, e in file.entries.items()}, tensors)


def test_becomes_a_zip_with_everything_in_it(tmp_path):
    tensors = state_dict()
    value = {"model": tensors, "optimizer": {"m": torch.full((4,), 7.0)}, "args": argparse.Namespace(lr=0.1)}
    file = read(save(value, tmp_path / "a.pt"))
    path = write(rewrite(file, "b.pt", {"bias": "new.bias"}), tmp_path / "out")
    loaded = torch.load(path, weights_only=False)
    assert_same(loaded["model"], {k.replace("bias", "new.bias"): v for k, v in tensors.items()})
    assert loaded["optimizer"]["m"].tolist() == [7.0] * 4
    assert loaded["args"].lr == 0.1


def test_every_cut_is_refused(tmp_path):
    data = save({"w": torch.ones(4)}, tmp_path / "a.pt").read_bytes()
    for end in [*range(30, len(data), 37), len(data) - 1]:
        (tmp_path / "cut.pt").write_bytes(data[:end])
        with pytest.raises((Damaged, Hostile)):
            read(tmp_path / "cut.pt")


def test_bytes_at_the_end_are_refused(tmp_path):
    path = save({"w": torch.ones(4)}, tmp_path / "a.pt")
    path.write_bytes(path.read_bytes() + b"more")
    with pytest.raises(Hostile, match="4 bytes follow"):
        read(path)


def test_a_storage_of_another_size_is_refused(tmp_path):
    path = save({"w": torch.ones(4)}, tmp_path / "a.pt")
    data = path.read_bytes()
    place = data.rindex(struct.pack("<q", 4))
    path.write_bytes(data[:place] + struct.pack("<q", 3) + data[place + 8 :])
    with pytest.raises(Damaged, match="3 elements, the pickle says 4"):
        read(path)


def test_a_big_endian_file_is_refused(tmp_path):
    path = save({"w": torch.ones(4)}, tmp_path / "a.pt")
    data = path.read_bytes()
    place = data.index(b"little_endian") + len(b"little_endian")
    place = data.index(b"\x88", place)
    path.write_bytes(data[:place] + b"\x89" + data[place + 1 :])
    with pytest.raises(Damaged, match="big-endian"):
        read(path)


def test_a_whole_module_says_so(tmp_path):
    with pytest.raises(NotACheckpoint, match="whole pickled module"):
        read(save(LocalModule(), tmp_path / "a.pt"))


class LocalModule(torch.nn.Module):
    """torch saves its source code with it."""
