"""Lays out a zip as torch writes it: stored records, each beginning at a multiple of 64 bytes.

In: records as parts of known size. Out: an OutFile: per record a local header padded by an ``FB``
field, the bytes, a data descriptor; then central directory and end records. Checksums that are
not known beforehand are zero at first and written by the seal, once the bytes have passed.

Byte for byte what torch's own writer makes of the same records, but for large ones that are copied: they
lie as far into a block as they did. Source: torch
``caffe2/serialize/inline_container.cc`` (``getPadding``) and its ``miniz`` (headers, zip64).
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

from remap.errors import Damaged
from remap.formats.base import ALIGNED, BLOCK, CopiedBytes, Literal, OutFile, Part
from remap.formats.torch.container import CENTRAL, END, END64, LOCAL, LOCATOR, U16, U32

ALIGNMENT = 64
"""Of every record: torch's default since 2.1, and what ``mmap=True`` likes."""

_FLAGS = 0x0808
_EMPTY_FLAGS = 0x0800
"""A record without bytes has no data descriptor."""

_MADE_BY, _NEEDS = 0x031E, 0x2D


@dataclass(frozen=True)
class NewRecord:
    """A record to be written: its name without the folder, its bytes, and their CRC-32 where known.

    offset  where in a source its bytes lie; large ones are put as far into a block, and can then share it
    """

    name: str
    part: Part | None
    crc32: int | None = None
    offset: int | None = None

    @property
    def nbytes(self) -> int:
        return 0 if self.part is None else self.part.nbytes

    @classmethod
    def of(cls, name: str, data: bytes) -> NewRecord:
        """A record whose bytes are at hand."""
        return cls(name, Literal(data) if data else None, zlib.crc32(data))

    @classmethod
    def copied(cls, name: str, part: CopiedBytes) -> NewRecord:
        """A record that is carried along."""
        return cls(name, part if part.nbytes else None, part.crc32 if part.nbytes else 0, part.offset)

    def padding(self, used: int, alignment: int) -> int:
        """Bytes to be left free at ``used``, so that the record's bytes are aligned."""
        if self.offset is None or self.offset % alignment or self.nbytes < ALIGNED:
            return -used % alignment
        return (self.offset - used) % BLOCK


@dataclass(frozen=True)
class _Placed:
    """A record in its place: ``part`` is the index of its part in the file, -1 where it is empty."""

    record: NewRecord
    header: int
    descriptor: int
    part: int

    def with_crc(self, crcs: Sequence[int]) -> int:
        return 0 if self.part < 0 else crcs[self.part]


def lay_out_zip(name: str, prefix: str, records: Sequence[NewRecord], alignment: int = ALIGNMENT) -> OutFile:
    """Describe the file ``name`` that holds ``records`` in the folder ``prefix``.

    The seal raises Damaged where a record's checksum is not the one that was known of it.
    """
    parts: list[Part] = []
    pending = bytearray()
    placed: list[_Placed] = []
    pos = 0
    for record in records:
        full = f"{prefix}/{record.name}".encode()
        header = _local_header(full, pos, record, alignment)
        pending += header
        start = pos
        pos += len(header) + record.nbytes
        if record.part is None:
            placed.append(_Placed(record, start, -1, -1))
            continue
        parts += [Literal(bytes(pending)), record.part]
        pending = bytearray(_descriptor(record.crc32 or 0, record.nbytes, start))
        placed.append(_Placed(record, start, pos, len(parts) - 1))
        pos += len(pending)
    known = {p.part: p.record.crc32 for p in placed if p.record.crc32 is not None}
    directory = _directory(prefix, placed, [known.get(i, 0) for i in range(len(parts))], pos)
    parts.append(Literal(bytes(pending) + directory))

    def seal(crcs: Sequence[int]) -> list[tuple[int, bytes]]:
        _check(name, placed, crcs)
        patches = [
            (p.descriptor + 4, struct.pack("<L", crcs[p.part]))
            for p in placed
            if p.part >= 0 and p.record.crc32 is None
        ]
        if patches:
            patches.append((pos, _directory(prefix, placed, crcs, pos)))
        return patches

    return OutFile(name, tuple(parts), seal)


def _check(name: str, placed: Sequence[_Placed], crcs: Sequence[int]) -> None:
    """A checksum that was wrong in the source is never written anew."""
    wrong = [
        f"{p.record.name}: {p.with_crc(crcs):08x}, should be {p.record.crc32:08x}"
        for p in placed
        if p.record.crc32 is not None and p.record.crc32 != p.with_crc(crcs)
    ]
    if wrong:
        raise Damaged(
            "records of the source do not have their checksums",
            where=name,
            problems=wrong,
            remedy="fetch the source again; its bytes are not what was saved",
        )


def _local_header(full: bytes, pos: int, record: NewRecord, alignment: int) -> bytes:
    """Local header of a record that begins at ``pos``, padded so that its bytes are aligned."""
    nbytes = record.nbytes
    wide = b""
    if nbytes >= U32 or pos >= U32:
        values = struct.pack("<2Q", nbytes, 0) if nbytes >= U32 else b""  # miniz: packed size not yet known
        values += struct.pack("<Q", pos) if pos >= U32 else b""
        wide = struct.pack("<2H", 1, len(values)) + values
    padding = record.padding(pos + LOCAL.size + len(full) + len(wide) + 4, alignment)
    extra = wide + struct.pack("<2sH", b"FB", padding) + b"Z" * padding
    flags = _FLAGS if nbytes else _EMPTY_FLAGS
    return LOCAL.pack(b"PK\x03\x04", 0, flags, 0, 0, 0, 0, 0, 0, len(full), len(extra)) + full + extra


def _descriptor(crc: int, nbytes: int, header: int) -> bytes:
    form = "<4sL2Q" if nbytes >= U32 or header >= U32 else "<4s3L"
    return struct.pack(form, b"PK\x07\x08", crc, nbytes, nbytes)


def _directory(prefix: str, placed: Sequence[_Placed], crcs: Sequence[int], start: int) -> bytes:
    """Central directory and end records of a file whose data ends at ``start``."""
    out = bytearray()
    for p in placed:
        full = f"{prefix}/{p.record.name}".encode()
        nbytes = p.record.nbytes
        values = struct.pack("<2Q", nbytes, nbytes) if nbytes >= U32 else b""
        values += struct.pack("<Q", p.header) if p.header >= U32 else b""
        wide = struct.pack("<2H", 1, len(values)) + values if values else b""
        small = min(nbytes, U32)
        out += CENTRAL.pack(
            b"PK\x01\x02", 0, 0, _FLAGS if nbytes else _EMPTY_FLAGS, 0, 0, 0, p.with_crc(crcs), small, small,
            len(full), len(wide), 0, 0, 0, 0, min(p.header, U32),
        )  # fmt: skip
        out += full + wide
    count, nbytes, end = len(placed), len(out), start + len(out)
    out += END64.pack(b"PK\x06\x06", END64.size - 12, _MADE_BY, _NEEDS, 0, 0, count, count, nbytes, start)
    out += LOCATOR.pack(b"PK\x06\x07", 0, end, 1)
    few = min(count, U16)
    out += END.pack(b"PK\x05\x06", 0, 0, few, few, min(nbytes, U32), min(start, U32), 0)
    return bytes(out)
