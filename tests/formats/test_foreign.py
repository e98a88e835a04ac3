"""What is no checkpoint is said to be what it is."""

from __future__ import annotations

import gzip
import io
import tarfile

import pytest

from remap.errors import InputError, NotACheckpoint
from remap.formats import registry


def tar() -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as t:
        t.addfile(tarfile.TarInfo("weights"), io.BytesIO())
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("model.safetensors", b"version https://git-lfs.github.com/spec/v1\n", "Git LFS pointer"),
        ("model.safetensors", b"", "the file is empty"),
        ("model.safetensors", b"<!DOCTYPE html><html>404", "web page"),
        ("model.gguf", b"GGUF\x03\0\0\0", "GGUF"),
        ("weights.h5", b"\x89HDF\r\n\x1a\n", "HDF5"),
        ("model.safetensors", bytes(4096), "begins with zeros"),
        ("model.bin.gz", gzip.compress(b"x", mtime=0), "gzip"),
        ("model.tar", tar(), "tar archive"),
        ("notes.txt", b"hello, world", "no checkpoint that remap knows"),
    ],
)
def test_a_file_is_called_by_its_name(tmp_path, name, content, message):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(NotACheckpoint, match=message) as e:
        registry.open_catalog(path)
    assert str(path) in str(e.value)
    assert e.value.exit_code == 3


def test_an_empty_folder_says_so(tmp_path):
    with pytest.raises(NotACheckpoint, match="the folder is empty"):
        registry.open_catalog(tmp_path)


def test_a_path_that_is_not_there_says_so(tmp_path):
    with pytest.raises(InputError, match="no such file or folder"):
        registry.open_catalog(tmp_path / "nothing")
