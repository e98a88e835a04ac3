"""One tensor whole in memory: read where files hold it, computed where they don't. Takes no torch."""

from __future__ import annotations

from zlib_ng.zlib_ng import crc32

from remap.expr import Take, blocks, ranges
from remap.stream.read import BUFFER, Sources, belied, read_runs
from remap.stream.run import MEMORY
from remap.types import Entry


def whole(entry: Entry) -> bytearray:
    """The row-major bytes of a tensor, its checksum compared where its file has one.

    Raises Damaged, and UsageError where only the key list is known.
    """
    runs = ranges.lower(Take(entry))
    return _computed(entry) if runs is None else _read(entry, runs)


def _read(entry: Entry, runs: list[ranges.Run]) -> bytearray:
    data = bytearray(entry.spec.nbytes)
    into = memoryview(data)
    crc = filled = 0

    def room() -> memoryview:
        return into[filled : filled + BUFFER]

    with Sources() as sources:
        for piece in read_runs(runs, sources, room):
            crc = crc32(piece, crc)
            filled += len(piece)
    where = entry.location
    if where is not None and where.crc32 not in (None, crc):
        raise belied(crc, where.crc32, f"{where.file}: {entry.key}")
    return data


def _computed(entry: Entry) -> bytearray:
    data = bytearray(entry.spec.nbytes)
    into = memoryview(data)
    for block in blocks.blocks(Take(entry), MEMORY):
        into[: len(block)] = block
        into = into[len(block) :]
    return data
