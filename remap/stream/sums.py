"""What is taken of the bytes while they pass: xxh3 of tensors, CRC-32 where anyone asks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from threading import Condition
from typing import NamedTuple

import xxhash
from zlib_ng.zlib_ng import crc32  # fifteen times the speed of zlib's, which would halve a copy's

from remap.expr import Take
from remap.formats.base import CopiedBytes, Part, TensorBytes
from remap.stream.read import belied

Data = memoryview | bytes


class Summed(NamedTuple):
    """Of a part whose bytes have passed: digest (hex) of a tensor, CRC-32 where the file is sealed."""

    digest: str | None
    crc: int


class Sum:
    """Of one part, while it passes."""

    def __init__(self, part: Part, sealed: bool) -> None:
        self._expected = known_crc(part)
        self._crc = 0 if sealed or self._expected is not None else None
        self._hash = xxhash.xxh3_128() if isinstance(part, TensorBytes) else None
        self._part = part

    def add(self, data: Data) -> None:
        if self._hash is not None:
            self._hash.update(data)
        if self._crc is not None:
            self._crc = crc32(data, self._crc)

    def done(self) -> Summed:
        """Raise Damaged where the source's own checksum disagrees with its bytes."""
        if self._expected is not None and self._crc is not None and self._crc != self._expected:
            file, name = _origin(self._part)
            raise belied(self._crc, self._expected, f"{file}: {name}")
        return Summed(self._hash.hexdigest() if self._hash else None, self._crc or 0)


class Turns:
    """The sum of a part whose blocks are made by several threads: each adds its own when its turn comes.

    Blocks are begun in order, so what a thread waits for is always done or under way.
    """

    def __init__(self, part: Part, sealed: bool, stopped: Callable[[], bool]) -> None:
        self._sum = Sum(part, sealed)
        self._next = 0
        self._changed = Condition()
        self._stopped = stopped

    def add(self, number: int, data: Data) -> None:
        """Add block ``number`` after all before it. Raises InterruptedError where the run has stopped."""
        with self._changed:
            while self._next != number:
                if self._stopped():
                    raise InterruptedError
                self._changed.wait(0.1)
            self._sum.add(data)
            self._next += 1
            self._changed.notify_all()

    def done(self) -> Summed:
        """As ``Sum.done``, once every block was added."""
        return self._sum.done()


def known_crc(part: Part) -> int | None:
    """The CRC-32 that the source says of a part, None where it says nothing."""
    if isinstance(part, CopiedBytes):
        return part.crc32
    if isinstance(part, TensorBytes) and isinstance(part.expr, Take):
        where = part.expr.entry.location
        return where.crc32 if where else None
    return None


def _origin(part: Part) -> tuple[Path | None, str]:
    if isinstance(part, CopiedBytes):
        return part.file, f"bytes {part.offset} to {part.offset + part.nbytes}"
    if isinstance(part, TensorBytes) and isinstance(part.expr, Take) and part.expr.entry.location:
        return part.expr.entry.location.file, part.expr.entry.key
    return None, ""
