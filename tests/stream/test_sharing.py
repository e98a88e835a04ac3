"""Blocks of the source are shared where the file system can, and the output is the same where it can't.

The system's call is stood in for by one that copies, and refuses what Linux refuses (ioctl_ficlonerange(2)):
ranges that are no whole blocks.
"""

from __future__ import annotations

import errno
import os

import pytest
import torch
from safetensors.torch import load_file, save_file

import remap
from remap.formats.base import BLOCK
from remap.formats.safetensors_header import read_header
from remap.formats.torch.container import read_archive
from remap.stream import disk

PACK = """
remap: 1
pack: t/longer
version: 1.0.0
title: longer names
stages:
  - rules:
      - {id: all, from: "{rest:path}", to: "model.of.another.name.{rest}"}
"""


class FileSystem:
    """One that shares blocks; it counts them, and gives up after ``limit`` calls."""

    def __init__(self, limit: int = 1 << 30) -> None:
        self.shared = 0
        self.left = limit

    def share(self, source: int, start: int, target: int, offset: int, nbytes: int) -> None:
        self.left -= 1
        if start % BLOCK or offset % BLOCK or nbytes % BLOCK or not nbytes or self.left < 0:
            raise OSError(errno.EINVAL, "Invalid argument")
        assert os.pwrite(target, os.pread(source, nbytes, start), offset) == nbytes
        self.shared += nbytes


@pytest.fixture(params=["safetensors", "pt"])
def source(tmp_path, request):
    """Two large matrices with small vectors between them."""
    generator = torch.Generator().manual_seed(0)
    names = {"a.weight": (600, 1000), "b.bias": (1000,), "c.weight": (1000, 700), "d.bias": (7,)}
    tensors = {k: torch.randn(s, generator=generator) for k, s in names.items()}
    path = tmp_path / f"model.{request.param}"
    save_file(tensors, path, {"format": "pt"}) if request.param == "safetensors" else torch.save(
        tensors, path
    )
    return path


@pytest.fixture
def pack(tmp_path):
    path = tmp_path / "pack.yaml"
    path.write_text(PACK)
    return path


def test_a_renames_tensors_are_shared(source, pack, tmp_path, monkeypatch):
    plain = tmp_path / f"plain{source.suffix}"
    receipt = remap.convert(source, plain, pack)
    system = FileSystem()
    monkeypatch.setattr(disk, "share", system.share)
    target = tmp_path / f"shared{source.suffix}"
    assert remap.convert(source, target, pack).tensors == receipt.tensors
    assert target.read_bytes() == plain.read_bytes()
    assert system.shared > 0.99 * 4 * (600_000 + 700_000)


def test_what_is_shared_only_at_first_is_copied(source, pack, tmp_path, monkeypatch):
    plain = tmp_path / f"plain{source.suffix}"
    remap.convert(source, plain, pack)
    system = FileSystem(limit=1)
    monkeypatch.setattr(disk, "share", system.share)
    target = tmp_path / f"copied{source.suffix}"
    remap.convert(source, target, pack)
    assert system.left < 0
    assert target.read_bytes() == plain.read_bytes()


def test_progress_counts_what_is_shared(source, pack, tmp_path, monkeypatch):
    monkeypatch.setattr(disk, "share", FileSystem().share)
    seen, totals = [], []

    def begin(files, total):
        totals.append(total)
        return seen.append

    remap.convert(source, tmp_path / f"out{source.suffix}", pack, progress=begin)
    assert sum(seen) == totals[0]


def test_the_way_back_gives_the_same_file(source, pack, tmp_path):
    there, back = tmp_path / f"there{source.suffix}", tmp_path / f"back{source.suffix}"
    remap.convert(source, there, pack)
    remap.convert(there, back, pack, inverse=True)
    assert but_for_room(back) == but_for_room(source)


def but_for_room(path):
    """A file's bytes, without the spaces that end the header of a safetensors file."""
    data = path.read_bytes()
    if path.suffix == ".pt":
        return data
    start = 8 + int.from_bytes(data[:8], "little")
    return data[8:start].rstrip(b" ") + data[start:]


def test_large_tensors_lie_in_their_blocks_as_they_did(source, pack, tmp_path):
    target = tmp_path / f"out{source.suffix}"
    remap.convert(source, target, pack)
    if source.suffix == ".pt":
        before = [r.offset for r in read_archive(source).records.values() if r.nbytes >= 1 << 20]
        after = [r.offset for r in read_archive(target).records.values() if r.nbytes >= 1 << 20]
        loaded = torch.load(target, weights_only=True, mmap=True)
    else:
        before, after = ([e.location.offset for e in read_header(p)[0].values()] for p in (source, target))
        loaded = load_file(target)
    assert [o % BLOCK for o in before] == [o % BLOCK for o in after]
    assert before != after or source.suffix != ".pt"
    assert loaded["model.of.another.name.d.bias"].shape == (7,)
