"""Keys are renamed inside safetensors files, taken back, and nothing else is ever changed."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from remap import api, inplace
from remap.errors import Damaged, DestinationError, RemapError, UsageError
from remap.inplace import steps as inplace_steps

TENSORS = {f"old.{i}.weight": torch.arange(4.0) + i for i in range(4)}
HEAD = "remap: 1\npack: t/p\nversion: 1.0.0\ntitle: t\nstages:\n  - rules:\n      - "


def pack(folder: Path, rule: str = '{id: r, from: "old.{x:path}", to: "new.{x}"}') -> str:
    path = folder / "pack.yaml"
    path.write_text(f"{HEAD}{rule}\n")
    return str(path)


@pytest.fixture(params=["file", "shards", "family"])
def checkpoint(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """One file, shards with an index, shards without."""
    folder = tmp_path / "model"
    folder.mkdir()
    if request.param == "file":
        save_file(TENSORS, folder / "model.safetensors", metadata={"format": "pt"})
        return folder
    save_file(TENSORS, tmp_path / "all.safetensors")
    api.convert(tmp_path / "all.safetensors", folder / "out", shard_size=32)
    for path in (folder / "out").iterdir():
        path.rename(folder / path.name)
    (folder / "out").rmdir()
    if request.param == "family":
        (folder / "model.safetensors.index.json").unlink()
        (folder / "remap.receipt.json").unlink()
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in folder.iterdir() if not p.name.endswith(".undo.json")}


def tensors(folder: Path) -> dict[str, torch.Tensor]:
    found: dict[str, torch.Tensor] = {}
    for path in sorted(folder.glob("*.safetensors")):
        found |= load_file(path)
    return found


def rename(folder: Path, rules: str) -> Path:
    return inplace.rename(api.plan(folder, rules))


def test_keys_are_renamed_and_no_tensor_moves(checkpoint: Path, tmp_path: Path) -> None:
    before = contents(checkpoint)
    rename(checkpoint, pack(tmp_path))
    found = tensors(checkpoint)
    assert all(found[k.replace("old", "new")].equal(v) for k, v in TENSORS.items())
    assert len(found) == len(api.catalog(checkpoint).entries) == 4
    for name, data in contents(checkpoint).items():
        if name.endswith(".safetensors"):
            start = 8 + int.from_bytes(data[:8], "little")
            assert data[start:] == before[name][start:]


def test_it_is_taken_back_byte_for_byte(checkpoint: Path, tmp_path: Path) -> None:
    before = contents(checkpoint)
    rename(checkpoint, pack(tmp_path))
    inplace.undo(checkpoint)
    assert contents(checkpoint) == before
    assert not list(checkpoint.glob("*.undo.json"))


def test_what_remap_wrote_has_room_for_longer_names(tmp_path: Path) -> None:
    save_file(TENSORS, tmp_path / "a.safetensors")
    longer = pack(tmp_path, '{id: r, from: "old.{x:path}", to: "base_model.model.language_model.{x}"}')
    with pytest.raises(UsageError, match=r"longer headers[\s\S]*a.safetensors: [0-9]+ bytes, [0-9]+ are"):
        rename(tmp_path / "a.safetensors", longer)
    api.convert(tmp_path / "a.safetensors", tmp_path / "out/a.safetensors")
    rename(tmp_path / "out/a.safetensors", longer)
    assert "base_model.model.language_model.0.weight" in load_file(tmp_path / "out/a.safetensors")


def test_the_receipt_follows(tmp_path: Path) -> None:
    save_file(TENSORS, tmp_path / "a.safetensors")
    out = tmp_path / "out"
    api.convert(tmp_path / "a.safetensors", out, shard_size=32)
    rules = pack(tmp_path)
    rename(out, rules)
    assert api.verify(out, against=tmp_path / "a.safetensors", rules=[rules])[1] == []
    inplace.undo(out)
    assert api.verify(out, against=tmp_path / "a.safetensors")[1] == []


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ('{id: r, drop: "old.0.{x}", because: it}\n      - {keep: "old.{x:path}"}', "dropped by"),
        ('{id: r, from: "old.{i:int}.weight", to: "old.{i}.w", do: {scale: {by: 2}}}', "made by"),
        ('{keep: "old.{x:path}"}', "no key is renamed"),
    ],
)
def test_what_is_more_than_a_rename_is_refused(
    checkpoint: Path, tmp_path: Path, rule: str, message: str
) -> None:
    before = contents(checkpoint)
    with pytest.raises(UsageError, match=message):
        rename(checkpoint, pack(tmp_path, rule))
    assert contents(checkpoint) == before


def test_another_format_is_refused(tmp_path: Path) -> None:
    torch.save(TENSORS, tmp_path / "a.pt")
    with pytest.raises(UsageError, match="only safetensors files are renamed in place"):
        rename(tmp_path / "a.pt", pack(tmp_path))


@pytest.mark.parametrize("link", [os.symlink, os.link])
def test_what_other_places_share_is_refused(tmp_path: Path, link) -> None:
    save_file(TENSORS, tmp_path / "blob.safetensors")
    (tmp_path / "a").mkdir()
    link(tmp_path / "blob.safetensors", tmp_path / "a/model.safetensors")
    with pytest.raises(UsageError, match="shared with other places"):
        rename(tmp_path / "a", pack(tmp_path))


def test_a_second_rename_waits_for_the_first_to_be_kept_or_undone(checkpoint: Path, tmp_path: Path) -> None:
    rules = pack(tmp_path)
    path = rename(checkpoint, rules)
    other = pack(tmp_path, '{id: r, from: "new.{x:path}", to: "old.{x}"}')
    with pytest.raises(DestinationError, match="was made here"):
        rename(checkpoint, other)
    path.unlink()
    rename(checkpoint, other)
    assert tensors(checkpoint).keys() == TENSORS.keys()


def test_files_that_others_changed_are_left_alone(checkpoint: Path, tmp_path: Path) -> None:
    rename(checkpoint, pack(tmp_path))
    save_file({"x": torch.ones(3)}, sorted(checkpoint.glob("*.safetensors"))[0])
    before = contents(checkpoint)
    with pytest.raises(Damaged, match="were changed since"):
        inplace.undo(checkpoint)
    assert contents(checkpoint) == before


def test_nothing_to_undo(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no undo file"):
        inplace.undo(tmp_path)


@pytest.mark.parametrize("steps", [1, 2])
def test_what_is_between_is_no_checkpoint_to_any_reader(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps: int
) -> None:
    done = []
    each = inplace_steps._each

    def some(*arguments: object) -> None:
        if len(done) == steps:
            raise KeyboardInterrupt
        done.append(each(*arguments))

    monkeypatch.setattr("remap.inplace.steps._each", some)
    with pytest.raises(KeyboardInterrupt):
        rename(checkpoint, pack(tmp_path))
    monkeypatch.undo()
    with pytest.raises(RemapError):
        api.catalog(checkpoint)
    with pytest.raises(SafetensorError, match="header too large"):
        tensors(checkpoint)
    inplace.finish(checkpoint)
    assert tensors(checkpoint).keys() == {k.replace("old", "new") for k in TENSORS}


def test_other_packs_do_not_finish_it(checkpoint: Path, tmp_path: Path) -> None:
    rename(checkpoint, pack(tmp_path))
    with pytest.raises(DestinationError, match="other packs"):
        inplace.finish(checkpoint, ["another digest"])


def test_an_undo_file_is_json_and_of_this_version(checkpoint: Path, tmp_path: Path) -> None:
    path = rename(checkpoint, pack(tmp_path))
    path.write_text(json.dumps({**json.loads(path.read_text()), "version": 2}))
    with pytest.raises(UsageError, match="use a newer remap"):
        inplace.undo(checkpoint)
