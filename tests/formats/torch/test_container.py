"""Zips that two readers would read differently are refused; what torch writes is written as torch does."""

from __future__ import annotations

import io
import os
import struct
import zipfile

import pytest
import torch

from remap.errors import Damaged, Hostile, InputError, NotACheckpoint
from remap.formats.base import CopiedBytes
from remap.formats.torch.container import read_archive
from remap.formats.torch.file import read
from remap.formats.torch.writing.layout import NewRecord, lay_out_zip
from remap.stream import write_files


@pytest.fixture
def good(tmp_path):
    """The bytes of a small file of torch, with one storage of 8 bytes."""
    torch.save({"w": torch.ones(2)}, tmp_path / "a.pt")
    return (tmp_path / "a.pt").read_bytes()


def zipped(*records, method=zipfile.ZIP_STORED, **attributes):
    """A zip of Python's, of (name, bytes)."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as z:
        for name, data in records:
            info = zipfile.ZipInfo(name)
            info.compress_type = method
            for key, value in attributes.items():
                setattr(info, key, value)
            z.writestr(info, data)
    return out.getvalue()


def patch(data, needle, new, nth=0):
    """``data`` with the ``nth`` ``needle`` overwritten."""
    at = -1
    for _ in range(nth + 1):
        at = data.index(needle, at + 1)
    return data[:at] + new + data[at + len(new) :]


def test_records_lie_where_zipfile_says(tmp_path, good):
    (tmp_path / "x.pt").write_bytes(good)
    archive = read_archive(tmp_path / "x.pt")
    source = zipfile.ZipFile(tmp_path / "x.pt")
    assert [f"{archive.prefix}/{n}" for n in archive.records] == source.namelist()
    for name, record in archive.records.items():
        assert archive.read(name) == source.read(f"a/{name}")
        assert record.crc32 == source.getinfo(f"a/{name}").CRC


REFUSED = {
    "two records of one name": lambda g: patch(g, b"a/version", b"a/data.pkl"[:9], 1),
    "names that differ in case": lambda g: zipped(("a/x", b""), ("a/X", b"")),
    "two folders": lambda g: zipped(("a/x", b""), ("b/y", b"")),
    "compressed": lambda g: zipped(("a/x", b"1" * 99), method=zipfile.ZIP_DEFLATED),
    "leads up": lambda g: zipped(("a/../x", b"")),
    "absolute": lambda g: zipped(("/a/x", b"")),
    "backslash": lambda g: zipped(("a/b\\c", b"")),
    "a link": lambda g: zipped(("a/x", b"t"), create_system=3, external_attr=0o120777 << 16),
    "a comment": lambda g: g[:-2] + b"\x02\x00hi",
    "bytes after it": lambda g: g + b"more",
    "bytes before it": lambda g: b"PK\x03\x04" + g,
    "two archives": lambda g: g + g,
    "encrypted": lambda g: patch(g, b"PK\x01\x02\0\0\0\0\x08\x08", b"PK\x01\x02\0\0\0\0\x09\x08"),
    "local header of another name": lambda g: patch(g, b"a/data/0", b"a/data/1"),
    "directory of another name": lambda g: patch(g, b"a/data/0", b"a/data/1", 1),
    "zip64 record that disagrees": lambda g: patch(g, b"PK\x06\x06", b"PK\x06\x06\x2d"),
}


@pytest.mark.parametrize("spoil", REFUSED.values(), ids=REFUSED)
def test_is_refused(tmp_path, good, spoil):
    path = tmp_path / "x.pt"
    path.write_bytes(spoil(good))
    with pytest.raises((Hostile, Damaged)) as e:
        read_archive(path)
    assert str(path) in str(e.value)


def test_every_cut_is_refused(tmp_path, good):
    path = tmp_path / "x.pt"
    for end in range(4, len(good), 13):
        path.write_bytes(good[:end])
        with pytest.raises((Damaged, Hostile)):
            read_archive(path)


def test_no_flipped_bit_is_read_as_something_else(tmp_path, good):
    """Whatever is accepted has the same records: what the flip changed is beside the point, or caught."""
    path = tmp_path / "x.pt"
    path.write_bytes(good)
    entry = read(path).entries["w"]
    for at in range(0, len(good), 7):
        path.write_bytes(good[:at] + bytes([good[at] ^ 0x10]) + good[at + 1 :])
        try:
            found = read(path, at="")
        except InputError:
            continue
        place = found.entries["w"].location
        assert (place.offset, found.entries["w"].spec) == (entry.location.offset, entry.spec)


def test_a_record_with_a_wrong_checksum_is_damaged(tmp_path, good):
    path = tmp_path / "x.pt"
    path.write_bytes(patch(good, b"torch._utils", b"torch._UTILS"))
    with pytest.raises(Damaged, match="record data.pkl does not have its checksum"):
        read(path)


@pytest.mark.parametrize(("missing", "error"), [("version", Damaged), ("data.pkl", NotACheckpoint)])
def test_a_zip_that_lacks_a_record(tmp_path, good, missing, error):
    source = zipfile.ZipFile(io.BytesIO(good))
    records = [(n, source.read(n)) for n in source.namelist() if n != f"a/{missing}"]
    (tmp_path / "x.pt").write_bytes(zipped(*records))
    with pytest.raises(error, match=missing):
        read(tmp_path / "x.pt")


def test_other_zips_are_no_checkpoint(tmp_path):
    (tmp_path / "x.npz").write_bytes(zipped(("arr_0.npy", b"x")))
    with pytest.raises(NotACheckpoint, match="arr_0.npy"):
        read_archive(tmp_path / "x.npz")


def test_a_pipe_is_not_opened(tmp_path):
    os.mkfifo(tmp_path / "x.pt")
    with pytest.raises(InputError, match="not a regular file"):
        read_archive(tmp_path / "x.pt")


def test_the_layout_is_torchs_own(tmp_path, good):
    source = tmp_path / "a.pt"
    archive = read_archive(source)
    records = [
        NewRecord.copied(r.name, CopiedBytes(source, r.offset, r.nbytes, None))
        for r in archive.records.values()
    ]
    (tmp_path / "out").mkdir()
    write_files([lay_out_zip("a.pt", "a", records)], tmp_path / "out")
    assert (tmp_path / "out" / "a.pt").read_bytes() == good


def sparse(out, path):
    """Write only the headers of a laid-out file; data stays holes."""
    pos = 0
    with path.open("wb") as f:
        for part in out.parts:
            f.seek(pos)
            if not isinstance(part, CopiedBytes):
                f.write(part.data)
            pos += part.nbytes


def test_records_beyond_4_gib_have_zip64_fields(tmp_path):
    """Sizes as torch's miniz writes them; compared with a file of torch 2.13 byte for byte once."""
    size = (1 << 32) + 100
    big = NewRecord("data/0", CopiedBytes(tmp_path, 0, size))
    out = lay_out_zip("x.pt", "x", [NewRecord.of("data.pkl", b"N."), big, NewRecord.of("version", b"3\n")])
    sparse(out, tmp_path / "x.pt")
    archive = read_archive(tmp_path / "x.pt")
    assert archive.records["data/0"].nbytes == size
    assert archive.records["data/0"].offset % 64 == 0
    assert archive.records["version"].offset > size
    header = out.parts[2].data
    assert struct.pack("<2H2Q", 1, 16, size, 0) in header
    info = zipfile.ZipFile(tmp_path / "x.pt").getinfo("x/version")
    assert info.header_offset > size
    assert out.parts[4].data.startswith(b"PK\x07\x08" + struct.pack("<L2Q", 0, size, size))


def test_more_records_than_16_bits_count(tmp_path):
    records = [NewRecord.of(f"data/{i}", b"") for i in range(70_000)]
    out = lay_out_zip("x.pt", "x", records)
    sparse(out, tmp_path / "x.pt")
    assert len(read_archive(tmp_path / "x.pt").records) == 70_000
