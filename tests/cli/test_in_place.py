"""``remap convert --in-place`` at the command line."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import load_file, save_file

PACK = """remap: 1
pack: t/p
version: 1.0.0
title: t
stages:
  - rules:
      - {id: r, from: old, to: new}
"""


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pack.yaml").write_text(PACK)
    save_file({"old": torch.ones(3)}, tmp_path / "m.safetensors")
    return tmp_path / "m.safetensors"


def test_there_and_back(remap, place):
    before = place.read_bytes()
    ran = remap("convert", place, "--in-place", "-r", "./pack.yaml")
    assert (ran.code, ran.out) == (0, f"{place}: keys renamed in place\n")
    assert "--undo takes it back, with m.safetensors.undo.json" in ran.err
    assert load_file(place).keys() == {"new"}
    assert remap("convert", place, "--in-place", "--undo").out == f"{place}: as it was\n"
    assert place.read_bytes() == before


def test_resume_ends_what_is_ended(remap, place):
    for more in ((), ("--resume",), ("--resume",)):
        assert remap("convert", place, "--in-place", "-r", "./pack.yaml", *more).code == 0
    assert load_file(place).keys() == {"new"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("out", "--in-place"), "takes no DESTINATION"),
        (("--in-place", "--to", "torch", "--dtype", "f16"), "leave out --to, --dtype"),
        (("--in-place", "--no-optimizer"), "leave out --no-optimizer"),
        ((), "say where to: DESTINATION, or --in-place"),
    ],
)
def test_what_means_nothing_is_refused(remap, place, arguments, message):
    ran = remap("convert", place, "-r", "./pack.yaml", *arguments)
    assert ran.code == 2
    assert message in ran.err


def test_a_file_between_says_what_to_do(remap, place):
    data = place.read_bytes()
    place.write_bytes(data[:7] + b"\x80" + data[8:])
    ran = remap("inspect", place)
    assert ran.code == 3
    assert "--in-place --resume" in ran.err
