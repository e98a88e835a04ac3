"""Copies of one tensor are compared while they are read."""

from __future__ import annotations

import pytest

from remap.dtypes import dtype
from remap.errors import Damaged
from remap.expr import Concat, Same, Take
from remap.stream import read
from remap.stream.read import read_expr
from remap.types import Entry, Location, TensorSpec


def same(tmp_path, *contents: bytes) -> Same:
    takes = []
    for i, content in enumerate(contents):
        (tmp_path / f"{i}.bin").write_bytes(b"head" + content)
        spec = TensorSpec(dtype("uint8"), (len(contents[0]),))
        takes.append(Take(Entry("norm", spec, Location(tmp_path / f"{i}.bin", 4))))
    return Same(tuple(takes))


@pytest.mark.parametrize("size", [1, 1000, read.BUFFER + 7])
def test_copies_that_agree_are_read_once(tmp_path, size):
    content = bytes(range(256)) * (size // 256 + 1)
    expr = same(tmp_path, content[:size], content[:size], content[:size])
    assert b"".join(bytes(b) for b in read_expr(Concat((expr, expr)), 1 << 20)) == content[:size] * 2


def test_a_copy_that_departs_is_named(tmp_path):
    content = bytes(read.BUFFER + 7)
    expr = same(tmp_path, content, content, content[:-1] + b"x")
    with pytest.raises(Damaged, match=r"0\.bin: norm: copies of one tensor do not agree") as caught:
        list(read_expr(expr, 1 << 20))
    assert caught.value.problems == (f"{tmp_path / '2.bin'}: norm has other bytes",)


def test_a_copy_that_ends_early_is_damaged(tmp_path):
    expr = same(tmp_path, bytes(100), bytes(50))
    with pytest.raises(Damaged, match=r"1\.bin: the file ends at byte 54"):
        list(read_expr(expr, 1 << 20))
