"""The flow, called from Python."""

from __future__ import annotations

import pytest
import torch
import xxhash
from safetensors.torch import load_file, save_file

import remap
from remap.errors import Damaged, PackError, UsageError


@pytest.fixture
def tensors(tmp_path):
    """Path of a safetensors file, and what is in it."""
    made = {"a.weight": torch.randn(4, 4), "b.weight": torch.randn(2).half()}
    save_file(made, tmp_path / "in.safetensors")
    return tmp_path / "in.safetensors", made


@pytest.mark.parametrize(
    ("name", "format_"),
    [
        ("x.safetensors", "safetensors"),
        ("x.pt", "torch"),
        ("x.pth", "torch"),
        ("x.bin", "torch"),
        ("x.ckpt", "torch"),
        ("x", "safetensors"),
    ],
)
def test_the_destination_says_the_format_unless_the_user_does(tensors, tmp_path, name, format_):
    assert remap.convert(tensors[0], tmp_path / name).format == format_


def test_without_packs_only_the_format_changes(tensors, tmp_path):
    path, made = tensors
    remap.convert(path, tmp_path / "x.pt")
    found = torch.load(tmp_path / "x.pt", weights_only=True)
    assert found.keys() == made.keys()
    assert all(found[k].equal(made[k]) for k in made)


def test_the_digest_is_xxh3_of_the_row_major_bytes(tensors, tmp_path):
    path, made = tensors
    receipt = remap.convert(path, tmp_path / "x.pt")
    wanted = xxhash.xxh3_128(made["a.weight"].numpy().tobytes()).hexdigest()
    assert receipt.tensors["a.weight"].xxh3_128 == wanted


def test_ties_have_a_digest_each(tmp_path):
    shared = torch.randn(3)
    torch.save({"a": shared, "b": shared, "view": shared[1:]}, tmp_path / "in.pt")
    receipt = remap.convert(tmp_path / "in.pt", tmp_path / "out.pt")
    assert receipt.tensors["a"].xxh3_128 == receipt.tensors["b"].xxh3_128
    wanted = xxhash.xxh3_128(shared[1:].numpy().tobytes()).hexdigest()
    assert receipt.tensors["view"].xxh3_128 == wanted


def test_ties_are_written_in_full_where_the_format_has_none(tmp_path):
    shared = torch.randn(3)
    torch.save({"a": shared, "b": shared}, tmp_path / "in.pt")
    remap.convert(tmp_path / "in.pt", tmp_path / "out.safetensors")
    found = load_file(tmp_path / "out.safetensors")
    assert found["a"].equal(shared)
    assert found["b"].equal(shared)


def test_ties_that_are_lost_are_said(tmp_path):
    shared = torch.randn(3)
    torch.save({"a": shared, "b": shared}, tmp_path / "in.pt")
    (said,) = remap.convert(tmp_path / "in.pt", tmp_path / "out.safetensors").warnings
    assert said.startswith("1 tensor that was tied to another is written in full")
    assert remap.convert(tmp_path / "in.pt", tmp_path / "out.pt").warnings == []


def test_a_cast_keeps_ties(tmp_path):
    shared = torch.randn(3)
    torch.save({"a": shared, "b": shared}, tmp_path / "in.pt")
    assert remap.convert(tmp_path / "in.pt", tmp_path / "out.pt", dtype="bf16").warnings == []
    found = torch.load(tmp_path / "out.pt", weights_only=True)
    assert found["a"].data_ptr() == found["b"].data_ptr()
    assert found["a"].equal(shared.bfloat16())


def test_a_source_that_changes_meanwhile_is_refused(tensors, tmp_path):
    def begin(files, total):
        tensors[0].write_bytes(tensors[0].read_bytes())
        return lambda n: None

    with pytest.raises(Damaged, match="was changed while it was read"):
        remap.convert(tensors[0], tmp_path / "x.pt", progress=begin)
    assert not (tmp_path / "x.pt").exists()


def test_one_pack_needs_no_list(tensors, tmp_path):
    with pytest.raises(PackError, match="no pack is called 'magma/from-fh'"):
        remap.plan(tensors[0], "magma/from-fh")


def test_what_the_format_cannot_carry_is_said_in_the_receipt(tmp_path):
    torch.save({"model": {"w": torch.ones(2)}, "optimizer": {"lr": 0.1}, "step": 3}, tmp_path / "in.pt")
    receipt = remap.convert(tmp_path / "in.pt", tmp_path / "out.safetensors")
    assert sorted(receipt.left_behind) == ["optimizer", "step"]
    assert remap.convert(tmp_path / "in.pt", tmp_path / "out.pt").left_behind == []
    assert torch.load(tmp_path / "out.pt", weights_only=True)["optimizer"] == {"lr": 0.1}


def test_a_conversion_to_nothing_is_never_a_success(tensors, tmp_path):
    pack = tmp_path / "p.yaml"
    pack.write_text(
        "remap: 1\npack: test/p\nversion: 1.0.0\ntitle: t\nstages:\n"
        "  - rules:\n      - {id: all, drop: '**', because: a test}\n"
    )
    with pytest.raises(UsageError, match="nothing is left to write"):
        remap.convert(tensors[0], tmp_path / "out", [pack])
    assert not (tmp_path / "out").exists()


def test_what_is_exported_is_what_is_there():
    assert all(hasattr(remap, name) for name in remap.__all__)
    assert {"open", "plan", "convert", "verify", "diff"} <= set(remap.__all__)
