"""Checkpoints on a web server and in an S3 store: what is asked of those, and what a user sees."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file
from servers import SIGNED, USER

import remap
from remap import api
from remap.errors import InputError, RemapError, UsageError
from remap.files import locate, store
from remap.files.store import HEAD

SHARDS = 3


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Three shards of 3 MB, their index, a configuration, and the same as one torch file."""
    root = tmp_path_factory.mktemp("model")
    weight_map = {}
    tensors = {}
    for n in range(SHARDS):
        name = f"model-{n + 1:05d}-of-{SHARDS:05d}.safetensors"
        generator = np.random.default_rng(n)
        shard = {f"layers.{n}.{k}": generator.random((500, 500), "f4") for k in "abc"}
        save_file(shard, root / name)
        weight_map |= dict.fromkeys(shard, name)
        tensors |= shard
    (root / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    (root / "config.json").write_text('{"model_type": "none"}')
    (root / "torch").mkdir()
    torch.save({k: torch.from_numpy(v) for k, v in tensors.items()}, root / "torch" / "model.pt")
    return root


@pytest.fixture
def served(web, folder):
    """The folder under every name that the server treats in its own way."""
    for name in ("open", "private", "signed", "whole", "flaky"):
        if not (web.folder / name).exists():
            (web.folder / name).symlink_to(folder)
    (web.folder / "open-org").mkdir(exist_ok=True)
    if not (web.folder / "open-org" / "open").exists():
        (web.folder / "open-org" / "open").symlink_to(folder)
    web.asked.clear()
    return web


@pytest.fixture(scope="module")
def _bucket(store, folder) -> str:
    url = store.bucket("models")
    store.put(folder, f"{url}/tiny")
    return f"{url}/tiny"


@pytest.fixture
def bucket(s3, _bucket) -> str:
    return _bucket


def keys_of(folder: Path) -> list[str]:
    return sorted(k for f in folder.glob("*.safetensors") for k in load_file(f))


def test_headers_come_from_the_web_in_ranges(served, folder):
    found = remap.open(f"{served.url}/open/model.safetensors.index.json")
    assert sorted(found) == keys_of(folder)
    shards = [a for a in served.asked if a.method == "GET" and ".safetensors" in a.path and a.sent]
    assert {a.range is not None for a in shards} == {True}
    assert sum(a.sent for a in shards if "index" not in a.path) == SHARDS * HEAD  # of 9 MB


def test_a_shard_stands_for_all_where_nothing_is_listed(served, folder):
    assert sorted(remap.open(f"{served.url}/open/model-00002-of-00003.safetensors")) == keys_of(folder)


def test_headers_come_from_s3_one_range_a_file(s3, bucket, folder):
    found = remap.open(bucket)
    assert sorted(found) == keys_of(folder)
    gets = [a for a in s3.asked if a.range]
    assert len(gets) == SHARDS + 2  # the index and config.json
    assert sum(a.sent for a in gets) < (SHARDS + 1) * HEAD


def test_an_object_opens_where_its_folder_may_not_be_listed(s3, bucket, folder):
    s3.refuse("GET", "list-type")
    assert sorted(remap.open(f"{bucket}/model.safetensors.index.json")) == keys_of(folder)
    assert sorted(remap.open(f"{bucket}/torch/model.pt")) == keys_of(folder)


def test_an_audit_reads_headers_only(served, bucket, s3):
    report = remap.audit(bucket, against=f"{served.url}/open/model.safetensors.index.json")
    assert report.exit_code == 0
    assert served.sent() + sum(a.sent for a in s3.asked) < 8 * HEAD


def test_one_tensor_takes_its_own_bytes(s3, bucket, folder):
    found = remap.open(bucket)
    s3.asked.clear()
    assert np.array_equal(
        found.numpy("layers.1.b"), load_file(folder / "model-00002-of-00003.safetensors")["layers.1.b"]
    )
    assert [a.sent for a in s3.asked] == [500 * 500 * 4]


def test_a_torch_file_is_opened_by_its_headers(s3, bucket, folder):
    found = remap.open(f"{bucket}/torch/model.pt")
    assert sorted(found) == keys_of(folder)
    assert sum(a.sent for a in s3.asked) < 5 * HEAD
    assert np.array_equal(
        found.numpy("layers.0.c"), load_file(folder / "model-00001-of-00003.safetensors")["layers.0.c"]
    )


@pytest.mark.parametrize("source", ["s3", "web"])
def test_a_conversion_reads_each_byte_once(source, s3, bucket, served, folder, tmp_path):
    url = bucket if source == "s3" else f"{served.url}/open/model.safetensors.index.json"
    api.convert(url, tmp_path / "out")
    for file in folder.glob("*.safetensors"):
        written, original = load_file(tmp_path / "out" / "model.safetensors"), load_file(file)
        assert all(np.array_equal(written[k], v) for k, v in original.items())
    size = sum(f.stat().st_size for f in folder.glob("*.safetensors"))
    sent = sum(a.sent for a in s3.asked if a.range) + served.sent()
    assert size < sent < size + 8 * HEAD


def test_a_source_that_is_replaced_meanwhile_is_found_out(s3, bucket, folder, tmp_path):
    url = f"{bucket}-moving"
    s3.put(folder, url)

    def begin(files, nbytes):
        save_file({"other": np.zeros(3)}, tmp_path / "model-00001-of-00003.safetensors")
        s3.put(tmp_path, url)
        return lambda n: None

    with pytest.raises(RemapError) as error:
        api.convert(url, tmp_path / "out", progress=begin)
    assert "model-00001-of-00003.safetensors" in str(error.value)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("place", "secret"),
    [("http://{user}@{host}/private", "s3cret-pass"), ("http://{host}/signed", "3d9c6f1a77")],
)
def test_a_secret_opens_the_files_and_is_told_nobody(place, secret, served, folder, tmp_path):
    url = place.format(user=USER, host=served.host) + "/model.safetensors.index.json?" * ("signed" in place)
    url = url if "signed" in place else f"{url}/model.safetensors.index.json"
    receipt = api.convert(f"{url}{SIGNED}" if "signed" in place else url, tmp_path / "out")
    assert secret not in receipt.encode().decode()
    assert secret not in repr(remap.open(url))


def test_a_server_without_ranges_is_not_read_wrong(served, tmp_path):
    with pytest.raises(InputError, match="range requests"):
        api.convert(f"{served.url}/whole/model.safetensors.index.json", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_headers_come_from_the_hugging_face_hub_in_ranges(served, folder):
    ran = subprocess.run(
        [sys.executable, "-m", "remap", "inspect", "--json", "hf://open-org/open"],
        env={**os.environ, "HF_ENDPOINT": served.url, "HF_HUB_OFFLINE": "0", "HF_HUB_DISABLE_XET": "1"},
        capture_output=True,
        check=False,
    )
    assert sorted(json.loads(ran.stdout or "{}").get("tensors", ())) == keys_of(folder), ran.stderr
    gets = [a for a in served.asked if a.method == "GET" and "/resolve/" in a.path]
    assert len(gets) == SHARDS + 2
    assert {a.range is not None for a in gets} == {True}
    assert sum(a.sent for a in gets) < (SHARDS + 1) * HEAD


def test_what_fails_on_the_way_is_asked_again(served, folder, tmp_path, monkeypatch):
    monkeypatch.setattr(store, "PAUSES", (0, 0))
    api.convert(f"{served.url}/flaky/model.safetensors.index.json", tmp_path / "out")
    assert 503 in {a.status for a in served.asked}
    assert sorted(load_file(tmp_path / "out" / "model.safetensors")) == keys_of(folder)


def test_the_names_of_a_remote_path_are_those_of_a_path():
    path = locate("https://ann:pass-word@host:8080/a/model.safetensors?sig=abcdefgh#top")
    assert (path.name, path.suffix) == ("model.safetensors", ".safetensors")
    assert str(path) == "https://host:8080/a/model.safetensors"
    assert str(path.parent / "b") == "https://host:8080/a/b"
    assert path.relative_to(path.parent).as_posix() == "model.safetensors"


def test_a_remote_path_is_nothing_that_the_system_opens():
    with pytest.raises(TypeError):
        os.fspath(locate("s3://bucket/key"))


def test_a_path_of_this_machine_stays_one(tmp_path):
    assert locate(f"file://{tmp_path}/a%20b") == tmp_path / "a b"
    assert type(locate("s3/no-url")) is type(Path())


def test_the_old_torch_format_is_refused(s3, bucket, tmp_path):
    torch.save({"w": torch.ones(3)}, tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    s3.put(tmp_path, f"{bucket}-old")
    with pytest.raises(InputError, match=r"before 1\.6"):
        remap.open(f"{bucket}-old/old.pt")


def test_a_store_without_its_client_names_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "gcsfs", None)
    with pytest.raises(UsageError, match="gcsfs"):
        remap.open("gs://bucket/model")
