"""Outputs in an S3 store (moto's): what is seen when, and what is left when something goes wrong."""

from __future__ import annotations

import json
import signal
import subprocess
import sys

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file

import remap
from remap import api, output
from remap.errors import DestinationError, UsageError, VerifyError

SIZE = 1500
"""Of a square matrix of float32: 9 MB, more than a part of an upload."""


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """Two matrices in safetensors, with a configuration."""
    folder = tmp_path_factory.mktemp("source")
    generator = np.random.default_rng(0)
    save_file({k: generator.random((SIZE, SIZE), "f4") for k in "ab"}, folder / "model.safetensors")
    (folder / "config.json").write_text('{"model_type": "none"}')
    return folder


@pytest.fixture
def bucket(s3, request) -> str:
    return s3.bucket(f"b-{abs(hash(request.node.name))}")


def name_of(bucket: str) -> str:
    return bucket.removeprefix("s3://")


def loaded(url):
    found = remap.open(url)
    return {k: found.numpy(k) for k in found}


def same(a, b) -> bool:
    return a.keys() == b.keys() and all(np.array_equal(a[k], b[k]) for k in a)


def steps(s3) -> list[str]:
    """``sent`` or ``seen`` and the file, of every upload in its order."""
    found = []
    for asked in s3.asked:
        key, _, query = asked.path.partition("?")
        name = key.rpartition("/")[2]
        if asked.method == "PUT":
            found.append(f"{'sent' if query else 'seen'} {name}")
        elif asked.method == "POST" and query.startswith("uploadId"):
            found.append(f"seen {name}")
    return found


def test_files_are_sent_in_parts_and_seen_when_all_are_there(s3, bucket, source):
    seen = []

    def begin(files, nbytes):
        return lambda n: seen.append(s3.keys(name_of(bucket)))

    receipt = api.convert(source, f"{bucket}/out", shard_size=10_000_000, progress=begin)
    assert not any(seen)
    found = steps(s3)
    assert found.count("sent model-00001-of-00002.safetensors") == 2
    order = [s.removeprefix("seen ") for s in found if s.startswith("seen")]
    assert set(order[:2]) == {f"model-0000{n}-of-00002.safetensors" for n in (1, 2)}
    assert order[2:] == ["config.json", "model.safetensors.index.json", "remap.receipt.json"]
    assert max(i for i, s in enumerate(found) if s.startswith("sent")) < found.index(f"seen {order[0]}")
    assert same(loaded(f"{bucket}/out"), load_file(source / "model.safetensors"))
    assert api.verify(f"{bucket}/out", against=source) == (receipt, [])


def test_from_one_store_to_another_place_each_byte_is_fetched_once(s3, bucket, source, tmp_path):
    s3.put(source, f"{bucket}/in")
    api.convert(f"{bucket}/in", f"{bucket}/out/model.safetensors", dtype="float16")
    size = (source / "model.safetensors").stat().st_size
    assert sum(a.sent for a in s3.asked if a.range and "/in/" in a.path) < size + (1 << 18)
    original = load_file(source / "model.safetensors")
    assert same(loaded(f"{bucket}/out/model.safetensors"), {k: v.astype("f2") for k, v in original.items()})


@pytest.mark.parametrize("to", ["torch", "dcp"])
def test_files_with_checksums_among_their_bytes_are_sent_whole(to, s3, bucket, source, tmp_path):
    api.convert(source, f"{bucket}/out", to=to)
    api.convert(source, tmp_path / "out", to=to)
    for file in (tmp_path / "out").rglob("*"):
        if file.name != "remap.receipt.json":
            stored = s3.get(f"{bucket}/out/{file.relative_to(tmp_path / 'out').as_posix()}")
            assert stored == file.read_bytes()


def test_a_renamed_torch_file_is_read_once(s3, bucket, tmp_path):
    torch.save({"w": torch.arange(3_000_000.0)}, tmp_path / "m.pt")
    s3.put(tmp_path, f"{bucket}/in")
    api.convert(f"{bucket}/in/m.pt", f"{bucket}/out.pt")
    assert sum(a.sent for a in s3.asked if a.range) < 12_000_000 + (1 << 19)
    (tmp_path / "out.pt").write_bytes(s3.get(f"{bucket}/out.pt"))
    assert torch.equal(torch.load(tmp_path / "out.pt", weights_only=True)["w"], torch.arange(3_000_000.0))


def test_what_is_there_is_not_touched(s3, bucket, source):
    api.convert(source, f"{bucket}/out")
    before = s3.keys(name_of(bucket))
    with pytest.raises(DestinationError, match="exists already"):
        api.convert(source, f"{bucket}/out")
    with pytest.raises(UsageError, match="--overwrite"):
        api.convert(source, f"{bucket}/out", overwrite=True)
    with pytest.raises(DestinationError, match="source"):
        api.convert(f"{bucket}/out", f"{bucket}/out/inside")
    assert s3.keys(name_of(bucket)) == before


def test_a_store_that_refuses_gets_nothing(s3, bucket, source):
    s3.refuse("PUT", "model-00002")
    with pytest.raises(DestinationError, match="can't be written") as error:
        api.convert(source, f"{bucket}/out", shard_size=10_000_000)
    assert s3.keys(name_of(bucket)) == s3.unfinished(name_of(bucket)) == []
    assert s3.environment["AWS_SECRET_ACCESS_KEY"] not in str(error.value)
    assert s3.environment["AWS_ACCESS_KEY_ID"] not in str(error.value)


def test_a_store_that_refuses_the_last_file_keeps_none(s3, bucket, source):
    s3.refuse("PUT", "receipt")
    with pytest.raises(DestinationError):
        api.convert(source, f"{bucket}/out")
    assert s3.keys(name_of(bucket)) == s3.unfinished(name_of(bucket)) == []


def test_an_output_that_is_not_what_was_planned_is_removed(s3, bucket, source, monkeypatch):
    def wrong(plan, written):
        raise VerifyError("the output is not what the plan says")

    monkeypatch.setattr(output, "check_headers", wrong)
    with pytest.raises(VerifyError):
        api.convert(source, f"{bucket}/out")
    assert s3.keys(name_of(bucket)) == s3.unfinished(name_of(bucket)) == []


def test_damage_in_the_source_leaves_nothing(s3, bucket, tmp_path):
    torch.save({"w": torch.arange(3_000_000.0)}, tmp_path / "m.pt")
    data = bytearray((tmp_path / "m.pt").read_bytes())
    data[6_000_000] ^= 1
    (tmp_path / "m.pt").write_bytes(data)
    with pytest.raises(remap.errors.Damaged, match="CRC-32"):
        api.convert(tmp_path / "m.pt", f"{bucket}/out.pt")
    assert s3.keys(name_of(bucket)) == s3.unfinished(name_of(bucket)) == []


def test_the_web_takes_no_output(source):
    with pytest.raises(DestinationError, match="no uploads"):
        api.convert(source, "https://example.org/out")


def test_receipts_tell_no_secret(s3, bucket, source):
    receipt = api.convert(source, f"{bucket}/out").encode().decode()
    assert json.loads(receipt)["source"]["name"] == "model.safetensors"
    assert not any(secret in receipt for secret in s3.environment.values())


KILLED = """
import os, signal, sys
from remap import api

def begin(files, nbytes):
    left = [nbytes]

    def told(n):
        left[0] -= n
        if not left[0]:
            os.kill(os.getpid(), signal.SIGKILL)

    return told

api.convert(sys.argv[1], sys.argv[2], progress=begin)
"""


def test_a_run_that_is_killed_leaves_nothing_that_is_seen(s3, bucket, source):
    ran = subprocess.run(
        [sys.executable, "-c", KILLED, str(source), f"{bucket}/out"], check=False, capture_output=True
    )
    assert ran.returncode == -signal.SIGKILL, ran.stderr
    assert steps(s3)
    assert s3.keys(name_of(bucket)) == []
    api.convert(source, f"{bucket}/out")
    assert same(loaded(f"{bucket}/out"), load_file(source / "model.safetensors"))
