"""Shards that only their names number."""

from __future__ import annotations

import re

import pytest
import torch

from remap.errors import Damaged
from remap.formats import registry
from remap.formats.families import check_family, family, firsts

PATTERN = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})(?P<suffix>\.bin)")


@pytest.fixture
def folder(tmp_path):
    """Two families and a file that is none."""
    for name in ("a-00002-of-00002.bin", "a-00001-of-00002.bin", "b-00001-of-00003.bin", "c.bin"):
        (tmp_path / name).touch()
    return tmp_path


def test_any_shard_finds_all_by_number(folder):
    found = family(folder / "a-00002-of-00002.bin", PATTERN)
    assert [p.name for p in found] == ["a-00001-of-00002.bin", "a-00002-of-00002.bin"]
    assert family(folder / "c.bin", PATTERN) == [folder / "c.bin"]


def test_one_stands_for_each_family(folder):
    found = firsts(sorted(folder.iterdir()), PATTERN)
    assert [p.name for p in found] == ["a-00001-of-00002.bin", "b-00001-of-00003.bin", "c.bin"]


def test_what_is_missing_is_named(folder):
    check_family(family(folder / "a-00001-of-00002.bin", PATTERN), PATTERN)
    with pytest.raises(Damaged, match="2 of 3 shards are missing") as e:
        check_family(family(folder / "b-00001-of-00003.bin", PATTERN), PATTERN)
    assert e.value.problems == ("b-00002-of-00003.bin", "b-00003-of-00003.bin")


def test_a_family_of_one_is_whole(tmp_path):
    torch.save({"a": torch.ones(1)}, tmp_path / "pytorch_model-00001-of-00001.bin")
    assert set(registry.open_catalog(tmp_path).entries) == {"a"}
