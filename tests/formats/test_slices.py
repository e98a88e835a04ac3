"""A file as bytes: the same slices as those of its content, wherever blocks begin."""

from __future__ import annotations

import pytest

from remap.formats.slices import BLOCK, FileBytes


@pytest.fixture
def file(tmp_path):
    """Three blocks and a bit, each byte telling its place."""
    content = bytes(i * 31 % 251 for i in range(3 * BLOCK + 7))
    path = tmp_path / "file"
    path.write_bytes(content)
    with FileBytes(path) as data:
        yield data, content


@pytest.mark.parametrize(
    ("first", "stop"),
    [
        (0, 4),
        (BLOCK - 1, BLOCK),
        (BLOCK, BLOCK + 1),
        (BLOCK - 2, BLOCK + 2),
        (5, 3 * BLOCK),
        (3 * BLOCK, None),
        (9, 9),
    ],
)
def test_a_slice_is_that_of_the_content(file, first, stop):
    data, content = file
    assert data[first:stop] == content[first:stop]


def test_the_end_is_where_the_file_ends(file):
    data, content = file
    assert len(data) == len(content)
    assert data[len(content) - 3 : len(content) + 100] == content[-3:]


def test_rfind_finds_the_last(file):
    data, content = file
    what = content[100:104]
    assert data.rfind(what, 0, len(data)) == content.rfind(what)
    assert data.rfind(b"nowhere", 0, len(data)) == -1
