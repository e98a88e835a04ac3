"""The receipt: found where it was left, and only for the files that it is of."""

from __future__ import annotations

import json

import pytest
import torch
import xxhash
from safetensors.torch import save_file

from remap import api, receipt
from remap.errors import Damaged, UsageError


@pytest.fixture
def out(tmp_path):
    """A file of two tensors, converted, with its receipt beside it."""
    save_file({"a": torch.ones(2), "b": torch.zeros(3)}, tmp_path / "in.safetensors")
    made = api.convert(tmp_path / "in.safetensors", tmp_path / "out.safetensors")
    return tmp_path / "out.safetensors", made


def test_it_lies_beside_a_file_and_says_what_convert_returned(out):
    path, made = out
    assert receipt.find(api.catalog(path)) == made
    assert receipt.receipt_path(path).name == "out.safetensors.receipt.json"


def test_it_names_source_and_sizes_and_no_place_or_date(out):
    path, _ = out
    text = receipt.receipt_path(path).read_text()
    document = json.loads(text)
    assert document["version"] == 1
    assert document["source"]["name"] == "in.safetensors"
    data = path.read_bytes()
    header = xxhash.xxh3_128_hexdigest(data[: 8 + int.from_bytes(data[:8], "little")])
    assert document["files"] == {"out.safetensors": {"size": len(data), "xxh3_128": header}}
    assert str(path.parent) not in text


def test_it_is_not_taken_for_another_files(out, tmp_path):
    save_file({"c": torch.ones(1)}, tmp_path / "other.safetensors")
    (tmp_path / receipt.RECEIPT).write_bytes(out[1].encode())
    assert receipt.find(api.catalog(tmp_path / "other.safetensors")) is None


def test_a_damaged_one_is_said_to_be(out):
    path = receipt.receipt_path(out[0])
    path.write_text("{")
    with pytest.raises(Damaged, match="not a receipt"):
        receipt.find(api.catalog(out[0]))


def test_one_of_a_newer_remap_asks_for_it(out):
    path = receipt.receipt_path(out[0])
    path.write_text(path.read_text().replace('"version": 1', '"version": 2'))
    with pytest.raises(UsageError, match="use a newer remap"):
        receipt.find(api.catalog(out[0]))
