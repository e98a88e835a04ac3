"""First bytes decide which formats are asked, and never hide a checkpoint."""

from __future__ import annotations

import os

import pytest
import torch
from safetensors.torch import save_file

from remap.formats import registry
from remap.formats.kinds import kind, kinds


def test_kinds_of_real_files(tmp_path):
    save_file({"a": torch.ones(1)}, tmp_path / "a.safetensors")
    torch.save({"a": torch.ones(1)}, tmp_path / "a.pt")
    torch.save({"a": torch.ones(1)}, tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    (tmp_path / "a.json").write_text('{"a": 1}')
    (tmp_path / "merges.txt").write_text("größe\n")
    (tmp_path / "step").mkdir()
    found = {p.name: kind(p) for p in tmp_path.iterdir() if p.is_file()}
    assert found == {
        "a.safetensors": "safetensors",
        "a.pt": "zip",
        "old.pt": "pickle",
        "a.json": "json",
        "merges.txt": "text",
    }
    assert kinds(tmp_path) == {"safetensors", "zip", "pickle", "json", "text", "folder"}


def test_a_header_length_that_looks_like_a_pickle_is_none(tmp_path):
    # 0x80, the first byte of a pickle, is the first of this header's length, too.
    path = tmp_path / "x.safetensors"
    save_file({"a": torch.ones(1)}, path)
    data = path.read_bytes()
    header = data[8:].partition(b"}}")[0] + b"}}"
    header += b" " * (0x80 - len(header))
    path.write_bytes((0x80).to_bytes(8, "little") + header + data[-4:])
    assert kind(path) == "safetensors"
    assert set(registry.open_catalog(path).entries) == {"a"}


@pytest.mark.parametrize("head", [b"", b"\x00\x01\x02", b"\xff\xfe"])
def test_what_is_of_no_known_kind_lets_every_format_be_asked(tmp_path, head):
    (tmp_path / "x").write_bytes(head)
    assert kinds(tmp_path) is None


def test_a_letter_cut_in_half_is_still_text(tmp_path):
    (tmp_path / "x").write_text("a" * 63 + "ß")
    assert kind(tmp_path / "x") == "text"


def test_a_pipe_is_not_read(tmp_path):
    os.mkfifo(tmp_path / "x.safetensors")
    save_file({"a": torch.ones(1)}, tmp_path / "y.safetensors")
    assert set(registry.open_catalog(tmp_path / "y.safetensors").entries) == {"a"}
