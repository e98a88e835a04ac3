"""Reads the zip container of torch files, strictly: what two zip readers could read differently is refused.

In: a file. Out: an Archive, the records with their places; data is not read. torch writes records
stored (never compressed), under one folder, each local header followed by its bytes, and the
central directory last. Only that is accepted, as readers differ on all else: of concatenated
archives torch opens the first and Python's zipfile the last; with two records of one name torch
decides by their number; torch looks names up without case; with ``mmap=True`` it takes deflated
bytes for weights and reads past short records.

Source of the numbers: PKWARE APPNOTE 6.3 (4.3.7 local header, 4.3.9 data descriptor, 4.3.12
central directory, 4.3.14-16 end records, 4.5.3 zip64 field).
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from stat import S_ISREG
from typing import NamedTuple

from remap.errors import Damaged, Hostile, InputError, NotACheckpoint
from remap.formats.slices import FileBytes

U16, U32 = 0xFFFF, 0xFFFFFFFF
MAX_RECORDS = 4_000_000
NAME = 511
"""Bytes of a record's name, at most."""

MAX_DESCRIPTOR = 24
"""Longest data descriptor: signature, CRC, two sizes of 64 bits."""

LOCAL = struct.Struct("<4s5H3L2H")
CENTRAL = struct.Struct("<4s6H3L5H2L")
END = struct.Struct("<4s4H2LH")
END64 = struct.Struct("<4sQ2H2L4Q")
LOCATOR = struct.Struct("<4sLQL")
_SAFE_FLAGS = 0x0808
"""Data descriptor follows; name is UTF-8. Nothing else: not encrypted, not patched."""

TORCHSCRIPT = "a TorchScript archive: its tensors are attributes of code"
TORCHSCRIPT_REMEDY = "torch.save(torch.jit.load(path).state_dict(), other_path)"
FETCH = "fetch the file again; its download or copy did not finish"
MISTRUST = "do not load this file; save it again with torch.save"


class Record(NamedTuple):
    """One record: its name without the archive's folder, and where its bytes lie."""

    name: str
    header: int
    offset: int
    nbytes: int
    crc32: int


class _Listed(NamedTuple):
    """What the central directory says of a record; ``raw`` is its name with the folder."""

    raw: bytes
    name: str
    header: int
    flags: int
    crc: int
    nbytes: int


@dataclass(frozen=True)
class Archive:
    """A read container.

    path     the file
    prefix   the folder that all records lie in
    records  name -> record, in the order of their bytes
    """

    path: Path
    prefix: str
    records: Mapping[str, Record]

    def read(self, name: str) -> bytes:
        """The bytes of a record, CRC checked. Raises Damaged, KeyError."""
        record = self.records[name]
        with self.path.open("rb") as f:
            f.seek(record.offset)
            data = f.read(record.nbytes)
        if len(data) != record.nbytes or zlib.crc32(data) != record.crc32:
            raise Damaged(
                f"record {name} does not have its checksum {record.crc32:08x}", where=self.path, remedy=FETCH
            )
        return data


def check_regular(path: Path) -> None:
    """Raise InputError for what is no file: opening a pipe would wait, a device would never end."""
    if not S_ISREG(path.stat().st_mode):
        raise InputError("not a regular file", where=path, remedy="give a file or a folder")


def read_archive(path: Path) -> Archive:
    """Read the headers of the zip at ``path``; offsets in it are those of the file.

    Raises NotACheckpoint where it is no zip, Damaged where it is cut short, Hostile where readers
    would differ on it.
    """
    check_regular(path)
    with path.open("rb") as f:
        if f.read(4) != b"PK\x03\x04":
            raise NotACheckpoint("not a zip file", where=path)
    with FileBytes(path) as data:
        return _Reader(path, data).read()


def read_window(path: Path, data: FileBytes, start: int, nbytes: int) -> Archive:
    """Read the headers of the zip that ``nbytes`` from byte ``start`` of ``path`` are.

    data  the whole file

    Offsets in the archive are those of the file. Raises as ``read_archive`` does.
    """
    if not 0 <= start <= start + nbytes <= len(data):
        raise Damaged(
            f"the file has {len(data)} bytes, {nbytes} from byte {start} on are wanted",
            where=path,
            remedy=FETCH,
        )
    archive = _Reader(path, Window(data, start, nbytes)).read()
    moved = {
        n: r._replace(header=r.header + start, offset=r.offset + start) for n, r in archive.records.items()
    }
    return Archive(path, archive.prefix, moved)


class Window:
    """A stretch of a file, counted from 0; slices of it are bytes."""

    def __init__(self, data: FileBytes, start: int, nbytes: int):
        self._data = data
        self._start = start
        self._nbytes = nbytes

    def __len__(self) -> int:
        return self._nbytes

    def __getitem__(self, part: slice) -> bytes:
        first, stop, _ = part.indices(self._nbytes)
        return self._data[self._start + first : self._start + max(first, stop)]

    def look_ahead(self, offsets: Sequence[int], nbytes: int) -> None:
        """As of the whole file."""
        self._data.look_ahead([self._start + at for at in offsets], nbytes)

    def rfind(self, what: bytes, first: int, stop: int) -> int:
        """As ``bytes.rfind``."""
        found = self._data.rfind(what, self._start + first, self._start + stop)
        return found - self._start if found >= 0 else -1


class _Reader:
    """One pass over end records, central directory and local headers."""

    def __init__(self, path: Path, data: FileBytes | Window):
        self.path = path
        self.data = data

    def hostile(self, what: str) -> Hostile:
        return Hostile(what, where=self.path, remedy=MISTRUST)

    def read(self) -> Archive:
        count, start, end = self._directory()
        listed: list[_Listed] = []
        folded: dict[str, str] = {}
        prefix = ""
        pos = start
        for _ in range(count):
            folder, entry, pos = self._entry(pos, end)
            prefix = prefix or folder
            if folder != prefix:
                raise self.hostile(f"records lie in two folders, {prefix!r} and {folder!r}")
            other = folded.setdefault(entry.name.lower(), entry.name)
            if other is not entry.name:
                raise self.hostile(f"two records are called {other!r} and {entry.name!r}")
            listed.append(entry)
        if pos != end:
            raise self.hostile(f"{end - pos} bytes follow the last entry of the central directory")
        self.data.look_ahead([e.header for e in listed], LOCAL.size + NAME)
        records = [self._record(e, start) for e in listed]
        records.sort(key=lambda r: r.header)
        self._check_gaps(records, start)
        return Archive(self.path, prefix, {r.name: r for r in records})

    def _directory(self) -> tuple[int, int, int]:
        """(number of records, start, end) of the central directory."""
        data, size = self.data, len(self.data)
        at = size - END.size
        if at < 0 or data[at : at + 4] != b"PK\x05\x06":
            if data.rfind(b"PK\x05\x06", max(0, size - END.size - U16), max(0, at) + 4) >= 0:
                raise self.hostile("bytes follow the end of the zip, or the zip has a comment")
            raise Damaged("the zip has no end record", where=self.path, remedy=FETCH)
        _, disk, first_disk, here, count, nbytes, start, comment = END.unpack(data[at:])
        end = at
        if at >= LOCATOR.size and data[at - LOCATOR.size : at - LOCATOR.size + 4] == b"PK\x06\x07":
            end, wide = self._directory64(at - LOCATOR.size)
            for narrow, real, limit in zip(
                (here, count, nbytes, start), wide, (U16, U16, U32, U32), strict=True
            ):
                if narrow not in (real, limit):
                    raise self.hostile("the two end records of the zip disagree")
            here, count, nbytes, start = wide
        elif U16 in (here, count) or U32 in (nbytes, start):
            raise self.hostile("the zip64 end record is missing")
        if disk or first_disk or here != count or comment:
            raise self.hostile("the zip spans disks, or has a comment")
        if not 0 < count <= MAX_RECORDS:
            raise NotACheckpoint(f"a zip of {count} records", where=self.path)
        if start + nbytes != end:
            raise self.hostile(f"the central directory should end at byte {end}, it ends at {start + nbytes}")
        return count, start, end

    def _directory64(self, locator: int) -> tuple[int, tuple[int, int, int, int]]:
        """(where the directory ends, its numbers), from the zip64 end record."""
        _, disk, at, disks = LOCATOR.unpack(self.data[locator : locator + LOCATOR.size])
        if at + END64.size != locator or self.data[at : at + 4] != b"PK\x06\x06":
            raise self.hostile("the zip64 end record does not lie before its locator")
        _, size, _, _, here_disk, first_disk, here, count, nbytes, start = END64.unpack(
            self.data[at : at + END64.size]
        )
        if size != END64.size - 12 or disk or here_disk or first_disk or disks != 1:
            raise self.hostile("the zip64 end record has odd fields")
        return at, (here, count, nbytes, start)

    def _entry(self, pos: int, end: int) -> tuple[str, _Listed, int]:
        """(folder, what is said, position of the next) for the entry at ``pos``."""
        data = self.data
        if pos + CENTRAL.size > end or data[pos : pos + 4] != b"PK\x01\x02":
            raise Damaged(f"the central directory breaks off at byte {pos}", where=self.path, remedy=FETCH)
        (
            _, made_by, _, flags, method, _, _, crc, packed, nbytes,
            name_size, extra_size, comment, disk, _, attributes, header,
        ) = CENTRAL.unpack(data[pos : pos + CENTRAL.size])  # fmt: skip
        pos += CENTRAL.size
        raw = data[pos : pos + name_size]
        extra = data[pos + name_size : pos + name_size + extra_size]
        pos += name_size + extra_size + comment
        if U32 in (packed, nbytes, header):
            nbytes, packed, header = self._zip64(raw, extra, nbytes, packed, header)
        folder, name = self._name(raw)
        if method and name.startswith("code/"):
            raise NotACheckpoint(TORCHSCRIPT, where=self.path, remedy=TORCHSCRIPT_REMEDY)
        if method:
            raise self.hostile(f"record {name!r} is compressed; torch maps its bytes as they are")
        if flags & ~_SAFE_FLAGS or packed != nbytes or comment or disk:
            raise self.hostile(
                f"record {name!r} is encrypted, has a comment, or two sizes ({packed}, {nbytes})"
            )
        if made_by >> 8 == 3 and attributes >> 28 not in (0, 8):
            raise self.hostile(f"record {name!r} is a link or device, not a file")
        return folder, _Listed(raw, name, header, flags, crc, nbytes), pos

    def _zip64(self, raw: bytes, extra: bytes, nbytes: int, packed: int, header: int) -> tuple[int, int, int]:
        """Sizes and offset, the saturated ones replaced from the one zip64 field."""
        fields: list[bytes] = []
        pos = 0
        while pos + 4 <= len(extra):
            kind, size = struct.unpack_from("<2H", extra, pos)
            if kind == 1:
                fields.append(extra[pos + 4 : pos + 4 + size])
            pos += 4 + size
        wanted = (nbytes, packed, header).count(U32)
        if len(fields) != 1 or pos != len(extra) or len(fields[0]) < 8 * wanted:
            raise self.hostile(f"record {raw!r} lacks its zip64 sizes")
        wide = iter(struct.unpack_from(f"<{wanted}Q", fields[0]))
        first, second, third = (next(wide) if v == U32 else v for v in (nbytes, packed, header))
        return first, second, third

    def _name(self, raw: bytes) -> tuple[str, str]:
        """(folder, name) of a record: a plain relative path of at least two parts."""
        try:
            full = raw.decode("utf-8")
        except UnicodeDecodeError:
            raise self.hostile(f"record {raw!r} has a name that is not UTF-8") from None
        folder, _, name = full.partition("/")
        odd = "\0" in full or "\\" in full or len(raw) > NAME
        if odd or any(part in ("", ".", "..") for part in full.split("/")):
            raise self.hostile(f"record {full!r} has a name that leads elsewhere")
        if not name:
            raise NotACheckpoint(f"a zip whose record {full!r} lies in no folder", where=self.path)
        return folder, name

    def _record(self, entry: _Listed, start: int) -> Record:
        """The record, after its local header agreed with the directory, which begins at ``start``."""
        raw, name, header, flags, crc, nbytes = entry
        data = self.data
        if header + LOCAL.size > start:
            raise self.hostile(f"record {name!r} lies past the end of the data")
        (
            magic, _, local_flags, method, _, _, local_crc, packed, local_size, name_size, extra_size,
        ) = LOCAL.unpack(data[header : header + LOCAL.size])  # fmt: skip
        at = header + LOCAL.size
        offset: int = at + name_size + extra_size
        differ = (
            magic != b"PK\x03\x04"
            or data[header : at + name_size][LOCAL.size :] != raw
            or method
            or local_flags != flags
        )
        if not flags & 8:
            differ = differ or local_crc != crc or {packed, local_size} - {nbytes, U32}
        if differ:
            raise self.hostile(
                f"record {name!r} has a local header that disagrees with the central directory"
            )
        if offset + nbytes > start:
            raise self.hostile(f"record {name!r} of {nbytes} bytes reaches past the end of the data")
        return Record(name, header, offset, nbytes, crc)

    def _check_gaps(self, records: list[Record], end: int) -> None:
        """Records follow each other, with room for a data descriptor at most."""
        if records[0].header != 0:
            raise self.hostile(f"{records[0].header} bytes lie before the first record")
        after = [*(r.header for r in records[1:]), end]
        for record, following in zip(records, after, strict=True):
            gap = following - record.offset - record.nbytes
            if gap < 0:
                raise self.hostile(f"record {record.name!r} overlaps the next")
            if gap > MAX_DESCRIPTOR:
                raise self.hostile(f"{gap} bytes that belong to nothing follow record {record.name!r}")
