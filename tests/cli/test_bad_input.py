"""Bad input: each kind has its message and exit code, and leaves nothing behind."""

from __future__ import annotations

import errno
import json
import os
import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

PACK = ("-r", "magma/from-hf")


@pytest.fixture
def source(pythia, tmp_path):
    """A copy of the sharded Pythia that a test may damage."""
    folder = tmp_path / "source"
    shutil.copytree(pythia("bf16-sharded"), folder)
    return folder


@pytest.fixture
def fails(remap, source, tmp_path):
    """Convert ``source``; the exit code and the message, after checking that nothing was left."""

    def convert(*arguments: object, path: Path = source, destination: Path = tmp_path / "out"):
        there = set(tmp_path.iterdir())
        ran = remap("convert", path, destination, *(arguments or (*PACK, "--to", "deepspeed-pipeline")))
        assert set(tmp_path.iterdir()) == there
        assert "Traceback" not in ran.err
        assert ran.out == ""
        return ran.code, ran.err

    return convert


def pack(path: Path, *rules: str) -> Path:
    """A pack with those rules, each a line of YAML."""
    head = f"remap: 1\npack: test/{path.stem}\nversion: 1.0.0\ntitle: a test\nstages:\n  - rules:\n"
    path.write_text(head + "".join(f"      - {r}\n" for r in rules))
    return path


def test_a_missing_shard(fails, source):
    (source / "model-00002-of-00009.safetensors").unlink(missing_ok=True)
    gone = sorted(source.glob("model-0000*"))[1]
    gone.unlink()
    code, message = fails()
    assert code == 3
    assert gone.name in message
    assert "shards are missing" in message


def test_a_truncated_file(fails, source):
    path = sorted(source.glob("*.safetensors"))[0]
    os.truncate(path, path.stat().st_size - 10)
    code, message = fails()
    assert code == 3
    assert f"{path}: the file is truncated" in message


def test_an_index_that_names_a_file_outside_the_folder(fails, source):
    path = source / "model.safetensors.index.json"
    index = json.loads(path.read_text())
    index["weight_map"]["gpt_neox.embed_in.weight"] = "../../etc/passwd"
    path.write_text(json.dumps(index))
    code, message = fails()
    assert code == 3
    assert "names files outside its folder" in message
    assert "'../../etc/passwd'" in message


def test_a_git_lfs_pointer(fails, tmp_path):
    path = tmp_path / "model.safetensors"
    path.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")
    code, message = fails(path=path)
    assert code == 3
    assert "git lfs pull" in message


def test_an_empty_file(fails, tmp_path):
    path = tmp_path / "model.safetensors"
    path.touch()
    code, message = fails(path=path)
    assert code == 3
    assert "the file is empty" in message


def test_a_folder_with_two_checkpoints(fails, source):
    torch.save({"w": torch.ones(1)}, source / "pytorch_model.bin")
    code, message = fails()
    assert code == 3
    assert "2 checkpoints are here" in message
    assert "pytorch_model.bin" in message
    assert "point at a file" in message


def test_a_file_that_is_no_checkpoint(fails, tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("groceries")
    code, message = fails(path=path)
    assert code == 3
    assert f"{path}: it is no checkpoint that remap knows" in message


def test_an_unknown_pack_is_answered_with_those_that_are_like_it(fails):
    code, message = fails("-r", "magma/from-fh")
    assert code == 2
    assert "magma/from-hf" in message


def test_a_rule_that_matches_nothing(fails, tmp_path):
    path = pack(
        tmp_path / "p.yaml", '{id: ghost, from: "ghost.{x}", to: "spirit.{x}"}', '{id: rest, keep: "**"}'
    )
    code, message = fails("-r", path)
    assert code == 2
    assert "ghost" in message
    assert "p.yaml" in message
    assert "line 7" in message or ":7" in message


def test_two_keys_with_one_target(fails, tmp_path):
    path = pack(
        tmp_path / "p.yaml",
        '{id: one, from: "gpt_neox.layers.{i:int}.input_layernorm.weight", to: "norm.{i}"}',
        '{id: other, from: "gpt_neox.layers.{i:int}.post_attention_layernorm.weight", to: "norm.{i}"}',
        '{id: rest, keep: "**"}',
    )
    code, message = fails("-r", path)
    assert code == 2
    assert "norm.0" in message
    assert "gpt_neox.layers.0.input_layernorm.weight" in message
    assert "gpt_neox.layers.0.post_attention_layernorm.weight" in message


def test_keys_that_no_rule_owns_are_all_named(fails, tmp_path):
    path = pack(tmp_path / "p.yaml", '{id: embed, from: "gpt_neox.embed_in.weight", to: "e.weight"}')
    code, message = fails("-r", path)
    assert code == 2
    assert "gpt_neox.final_layer_norm.bias" in message


def test_an_input_that_was_converted_already(remap, source, tmp_path, fails):
    remap("convert", source, tmp_path / "magma", *PACK, "--to", "deepspeed-pipeline")
    for rules, says in (
        ("magma/from-hf", "the keys have the names that magma/from-hf would give them already"),
        ("magma/wrap-adapters", "has been applied to these keys before"),
    ):
        code, message = fails("-r", rules, path=tmp_path / "magma")
        assert code == 2
        assert says in message


def test_too_little_room_is_said_before_anything_is_written(fails, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: type("Usage", (), {"free": 1000})())
    code, message = fails()
    assert code == 2
    assert "the disk has 1000 free" in message


@pytest.mark.parametrize(
    ("number", "reason"), [(errno.ENOSPC, "the disk is full"), (errno.EDQUOT, "the quota is used up")]
)
def test_a_disk_that_fills_up_while_writing(fails, monkeypatch, number, reason):
    def pwrite(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "pwrite", pwrite)
    code, message = fails()
    assert code == 2
    assert reason in message


@contextmanager
def nobody():
    """As a user who may write nothing here, also where the tests run as root."""
    if os.geteuid():
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def test_no_permission_to_write(remap, source):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        save_file({"w": torch.ones(1)}, path / "in.safetensors")
        (path / "in.safetensors").chmod(0o644)
        path.chmod(0o555)
        remap("inspect", path / "in.safetensors")  # imports what it needs while it may
        with nobody():
            ran = remap("convert", path / "in.safetensors", path / "out.safetensors")
        path.chmod(0o755)
        assert ran.code == 2
        assert "no permission to write there" in ran.err
        assert [p.name for p in path.iterdir()] == ["in.safetensors"]


def test_no_permission_to_read(remap):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        save_file({"w": torch.ones(1)}, path / "in.safetensors")
        path.chmod(0o755)
        (path / "in.safetensors").chmod(0)
        with nobody():
            ran = remap("inspect", path / "in.safetensors")
        assert ran.code == 3
        assert "no permission to read" in ran.err


@pytest.mark.parametrize("name", ["source", "source/out", "source/../source"])
def test_a_destination_inside_the_source(fails, source, tmp_path, name):
    before = sorted(source.iterdir())
    code, message = fails(destination=tmp_path / name)
    assert code == 2
    assert "a source is never written to" in message
    assert sorted(source.iterdir()) == before


def test_a_destination_that_exists(fails, remap, source, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out/something").touch()
    code, message = fails()
    assert code == 2
    assert "exists already" in message


def test_keys_that_the_format_cannot_hold(fails):
    code, message = fails("--to", "deepspeed-pipeline")
    assert code == 2
    assert "keys that begin with a layer's number" in message
    assert "gpt_neox.embed_in.weight" in message


def test_an_unknown_format(fails):
    code, message = fails("--to", "onnx")
    assert code == 2
    assert "no format is called 'onnx'" in message


@pytest.mark.parametrize(
    "arguments", [["-p", "layers"], ["--shard-size", "big"], ["--jobs", "0"], ["--what"]]
)
def test_wrong_arguments(fails, arguments):
    code, _ = fails(*arguments)
    assert code == 2


@pytest.mark.parametrize("tag", ["../../evil", "/abs", "a/b", "..", "", "latest"])
def test_a_tag_that_is_no_name_of_a_folder(fails, tag):
    code, message = fails(*PACK, "--to", "deepspeed-pipeline", "--tag", tag)
    assert code == 2
    assert "is no name for a folder" in message


@pytest.mark.parametrize("dtype", ["int8", "bool", "complex64", "float8_e8m0fnu"])
def test_a_type_that_holds_no_weights(fails, dtype):
    code, message = fails("--dtype", dtype)
    assert code == 2
    assert "weights are not cast to" in message


def test_shards_for_a_destination_that_is_one_file(fails, tmp_path):
    code, message = fails("--shard-size", "100KB", destination=tmp_path / "x.safetensors")
    assert code == 2
    assert "x.safetensors is one" in message


def test_a_suffix_that_contradicts_the_format(fails, tmp_path):
    code, message = fails("--to", "torch", destination=tmp_path / "x.safetensors")
    assert code == 2
    assert "says safetensors and --to says torch" in message


def test_a_name_that_safetensors_keeps_for_itself(fails, tmp_path):
    torch.save({"__metadata__": torch.ones(1)}, tmp_path / "odd.pt")
    code, message = fails("--to", "safetensors", path=tmp_path / "odd.pt")
    assert code == 2
    assert "keeps '__metadata__' for itself" in message


def test_a_source_that_is_only_names(fails, source, tmp_path):
    path = tmp_path / "model.safetensors.index.json"
    shutil.copy(source / path.name, path)
    code, message = fails("-r", "gpt_neox/hf-to-neox", "--to", "safetensors", path=path)
    assert code == 2
    assert "only the key list is known" in message


def test_a_document_does_not_replace_a_checkpoint(remap, source):
    path = source / "model-00001-of-00002.safetensors"
    path = sorted(source.glob("*.safetensors"))[0]
    before = path.read_bytes()
    ran = remap("keys", source, "-o", path)
    assert ran.code == 2
    assert "is part of a checkpoint, not to be replaced by a document" in ran.err
    assert path.read_bytes() == before


@pytest.mark.parametrize("name", ["config.json", "generation_config.json", "model.safetensors.index.json"])
def test_a_document_does_not_replace_what_lies_beside_weights(remap, source, name):
    before = (source / name).read_bytes()
    for command in (("keys", source), ("audit", source, "--against", source)):
        ran = remap(*command, "-o", source / name)
        assert ran.code == 2
        assert "is part of a checkpoint" in ran.err
    assert (source / name).read_bytes() == before
    assert remap("keys", source, "-o", source / "keys.json").code == 0


def test_values_of_a_key_list_are_not_said_to_be_the_same(remap, source, tmp_path):
    remap("keys", source, "-o", tmp_path / "keys.json")
    ran = remap("diff", tmp_path / "keys.json", source)
    assert ran.code == 2
    assert "--no-values" in ran.err
    assert remap("diff", tmp_path / "keys.json", source, "--no-values").code == 0
