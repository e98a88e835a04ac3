"""Files that hold checksums of their own parts, made whole before they are sent: an upload can't go back."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import replace
from itertools import accumulate

from remap.formats.base import Literal, OutFile, Part
from remap.stream.copy import write_parts
from remap.stream.sums import known_crc
from remap.stream.work import Task


class _Nowhere:
    """What is only summed goes here."""

    def write(self, data: memoryview | bytes) -> None:
        pass


def sealed(file: OutFile, budget: int) -> OutFile:
    """The same file without a seal: parts of which no checksum is known are read for it, a first time.

    budget  bytes that a computed block may take

    Raises Damaged, OSError.
    """
    if file.seal is None:
        return file
    crcs = [_crc(part, budget) for part in file.parts]
    starts = list(accumulate((p.nbytes for p in file.parts), initial=0))
    parts = list(file.parts)
    for offset, data in file.seal(crcs):
        number = bisect_right(starts, offset) - 1
        part = parts[number]
        assert isinstance(part, Literal)
        at = offset - starts[number]
        parts[number] = Literal(part.data[:at] + data + part.data[at + len(data) :])
    return replace(file, parts=tuple(parts), seal=None)


def _crc(part: Part, budget: int) -> int:
    known = known_crc(part)
    if known is not None:
        return known
    return write_parts(Task(0, 0, 0, (part,)), _Nowhere(), True, None, budget, lambda n: None)[0].crc
