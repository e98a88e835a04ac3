"""Files are written as laid out, with digests taken on the way, under the memory that was given."""

from __future__ import annotations

import zlib

import pytest
import torch
import xxhash

from remap.dtypes import dtype
from remap.errors import Damaged, UsageError
from remap.expr import Cast, Concat, Pad, Permute, Slice, Take, blocks
from remap.formats.base import CopiedBytes, Literal, OutFile, TensorBytes
from remap.stream import work, write_files
from remap.types import Entry, Location, TensorSpec


@pytest.fixture
def matrix(tmp_path):
    """A 64 x 64 fp32 matrix in a file, after 16 bytes."""
    value = torch.randn(64, 64)
    path = tmp_path / "source.bin"
    path.write_bytes(b"sixteen bytes..." + value.numpy().tobytes())
    entry = Entry("m", TensorSpec(dtype("float32"), (64, 64)), Location(path, 16))
    return Take(entry), value


@pytest.fixture
def folder(tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    return out


def test_parts_follow_one_another(matrix, folder, tmp_path):
    take, value = matrix
    parts = (
        Literal(b"head"),
        TensorBytes("m", take),
        CopiedBytes(tmp_path / "source.bin", 0, 7),
        Literal(b"tail"),
    )
    write_files([OutFile("sub/x", parts)], folder)
    assert (folder / "sub/x").read_bytes() == b"head" + value.numpy().tobytes() + b"sixteen" + b"tail"


@pytest.mark.parametrize("jobs", [1, 4])
@pytest.mark.parametrize("size", [1, 5000, 64 << 20])
def test_however_the_work_is_cut_the_bytes_are_the_same(matrix, folder, monkeypatch, jobs, size):
    monkeypatch.setattr(work, "TASK_BYTES", size)
    take, value = matrix
    rows = tuple(TensorBytes(f"{i}", Slice(take, 0, i, i + 1)) for i in range(64))
    write_files([OutFile("a", rows), OutFile("b", rows[::-1])], folder, jobs=jobs)
    assert (folder / "a").read_bytes() == value.numpy().tobytes()
    assert (folder / "b").read_bytes() == value.flip(0).numpy().tobytes()


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (lambda t: t, lambda v: v),
        (lambda t: Permute(t, (1, 0)), lambda v: v.T),
        (lambda t: Cast(t, dtype("bfloat16")), lambda v: v.bfloat16()),
        (lambda t: Concat((Slice(t, 0, 32, 64), Slice(t, 0, 0, 32))), lambda v: v.roll(32, 0)),
        (lambda t: Pad(t, 0, 0, 3), lambda v: torch.cat([v, torch.zeros(3, 64)])),
    ],
)
def test_the_digest_is_that_of_the_tensors_bytes(matrix, folder, build, expected):
    take, value = matrix
    written = write_files([OutFile("x", (TensorBytes("k", build(take)),))], folder)
    wanted = expected(value).contiguous().view(torch.uint8).numpy().tobytes()
    assert (folder / "x").read_bytes() == wanted
    assert written.digests == {"k": xxhash.xxh3_128(wanted).hexdigest()}


def test_a_seal_is_told_the_crc_of_every_part(matrix, folder):
    take, value = matrix
    told = []
    seal = lambda crcs: told.extend(crcs) or [(0, b"SEAL")]  # noqa: E731
    write_files([OutFile("x", (Literal(b"????"), TensorBytes("m", take)), seal)], folder)
    assert told == [zlib.crc32(b"????"), zlib.crc32(value.numpy().tobytes())]
    assert (folder / "x").read_bytes()[:4] == b"SEAL"


def test_a_source_that_belies_its_checksum_is_damage(matrix, folder, tmp_path):
    entry = Entry("m", matrix[0].spec, Location(tmp_path / "source.bin", 16, None, crc32=12345))
    with pytest.raises(Damaged, match="m: the bytes have CRC-32"):
        write_files([OutFile("x", (TensorBytes("m", Take(entry)),))], folder)


def test_a_source_that_ends_too_early_is_damage(folder, tmp_path):
    (tmp_path / "short").write_bytes(b"abc")
    with pytest.raises(Damaged, match="ends at byte 3, 5 bytes too early"):
        write_files([OutFile("x", (CopiedBytes(tmp_path / "short", 0, 8),))], folder)


def test_progress_counts_every_byte(matrix, folder):
    seen = []
    write_files([OutFile("x", (TensorBytes("m", matrix[0]),))], folder, progress=seen.append)
    assert sum(seen) == 64 * 64 * 4


def test_fewer_threads_rather_than_too_much_memory(matrix, folder):
    need = blocks.peak(Cast(matrix[0], dtype("float64")), 1)
    files = [OutFile("x", tuple(TensorBytes(str(i), Cast(matrix[0], dtype("float64"))) for i in range(4)))]
    write_files(files, folder, jobs=4, memory=need)
    assert (folder / "x").read_bytes() == matrix[1].double().numpy().tobytes() * 4


def test_what_the_remedy_asks_for_is_enough(matrix, folder):
    files = [OutFile("x", (TensorBytes("k", Cast(matrix[0], dtype("float64"))),))]
    with pytest.raises(UsageError) as e:
        write_files(files, folder, jobs=4, memory=1000)
    write_files(files, folder, jobs=4, memory=int(e.value.remedy.split()[2]))


def test_no_threads_are_refused(folder):
    with pytest.raises(UsageError, match="give --jobs 1 or more"):
        write_files([], folder, jobs=-1)


def test_a_file_outside_the_folder_is_refused(folder):
    with pytest.raises(UsageError, match="outside the destination"):
        write_files([OutFile("../../x", (Literal(b"x"),))], folder)


def test_an_error_stops_the_other_tasks(matrix, folder, tmp_path, monkeypatch):
    monkeypatch.setattr(work, "TASK_BYTES", 1)
    (tmp_path / "short").write_bytes(b"abc")
    seen = []
    parts = (CopiedBytes(tmp_path / "short", 0, 8), *(TensorBytes(str(i), matrix[0]) for i in range(500)))
    with pytest.raises(Damaged):
        write_files([OutFile("x", parts)], folder, jobs=1, progress=seen.append)
    assert sum(seen) < 500 * matrix[0].spec.nbytes


def test_an_unfinished_file_has_no_name_that_a_loader_takes(matrix, folder):
    names = []
    write_files(
        [OutFile("model.safetensors", (TensorBytes("m", matrix[0]),))],
        folder,
        progress=lambda n: names.extend(p.name for p in folder.iterdir()),
    )
    assert names == ["model.safetensors.part"]
    assert [p.name for p in folder.iterdir()] == ["model.safetensors"]


def test_what_needs_more_than_the_memory_is_refused_before_anything_is_written(matrix, folder):
    cast = Cast(matrix[0], dtype("float64"))
    with pytest.raises(UsageError, match=r"k: needs [0-9]+ bytes[\s\S]*give --memory"):
        write_files([OutFile("x", (TensorBytes("k", cast),))], folder, memory=1000)
    assert list(folder.iterdir()) == []


@pytest.fixture
def large(tmp_path):
    """An fp32 matrix as float64, of more bytes than a task: its blocks are tasks. Nothing divides."""
    value = torch.arange(150 * 70_001, dtype=torch.float32).reshape(150, 70_001)
    path = tmp_path / "large.bin"
    path.write_bytes(value.numpy().tobytes())
    take = Take(Entry("l", TensorSpec(dtype("float32"), tuple(value.shape)), Location(path, 0)))
    return Cast(take, dtype("float64")), value.double().numpy().tobytes()


@pytest.mark.parametrize("jobs", [1, 2, 5])
def test_threads_share_a_large_tensor_and_give_its_bytes_and_sums(large, folder, jobs):
    expr, wanted = large
    told, seen = [], []
    seal = lambda crcs: told.extend(crcs) or []  # noqa: E731
    file = OutFile("x", (Literal(b"head"), TensorBytes("k", expr), Literal(b"tail")), seal)
    assert sum(isinstance(t, work.BlockTask) for t in work.tasks([file], work.computed([file]), 1 << 30)) > 5
    written = write_files([file], folder, jobs=jobs, progress=seen.append)
    assert (folder / "x").read_bytes() == b"head" + wanted + b"tail"
    assert written.digests == {"k": xxhash.xxh3_128(wanted).hexdigest()}
    assert told == [zlib.crc32(b"head"), zlib.crc32(wanted), zlib.crc32(b"tail")]
    assert sum(seen) == file.nbytes


def test_a_block_that_fails_keeps_no_other_waiting(large, folder, tmp_path):
    (tmp_path / "large.bin").write_bytes(bytes(1000))
    with pytest.raises(Damaged, match="the file ends inside the tensor"):
        write_files([OutFile("x", (TensorBytes("k", large[0]),))], folder, jobs=4)
