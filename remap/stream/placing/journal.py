"""What a run has written so far, and for which conversion: lines of JSON in its room.

    {"key": {"rules": ..., "inputs": ..., "output": ..., "remap": ...}}    of which conversion; the first line
    {"part": [2, 5], "digest": "...", "crc": 1234}                         part 5 of file 2 is written
    {"putting": [device, inode]}                                           the output is about to get its name

A line is written after what it speaks of, and the last one may be cut short. What it says of tensors is never
believed: their bytes are read again and compared.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec
import xxhash

from remap.errors import DestinationError
from remap.formats.base import Literal, OutFile, Part, TensorBytes
from remap.stream.read import BUFFER
from remap.stream.sums import Summed
from remap.stream.work import Place

CHANGED = {
    "remap": "another version of remap began it",
    "rules": "the rules, or their parameters, are others",
    "inputs": "the source is another, or was changed since",
    "output": "the options are others: format, types, shards, what is kept",
}
"""Part of a conversion's key -> what it means that it differs."""


class Line(msgspec.Struct, omit_defaults=True):
    """One line of a journal; one of ``key``, ``part`` and ``putting`` is there."""

    key: dict[str, str] | None = None
    part: Place | None = None
    digest: str | None = None
    crc: int = 0
    putting: Place | None = None


class Journal:
    """The journal in the open file ``fd``, which it doesn't close.

    key      of which conversion it is, None where that was never written
    putting  device and inode of the output that was about to get its name
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._end = 0
        self.key: dict[str, str] | None = None
        self.putting: Place | None = None
        self._written: dict[Place, Summed] = {}
        for line in self._lines():
            if line.part:
                self._written[line.part] = Summed(line.digest, line.crc)
            self.key, self.putting = line.key or self.key, line.putting or self.putting

    def _lines(self) -> Iterator[Line]:
        with os.fdopen(os.dup(self._fd), "rb") as f:
            f.seek(0)
            for text in f:
                try:
                    yield msgspec.json.decode(text, type=Line)
                except msgspec.MsgspecError:  # cut short, and all after it
                    return
                self._end += len(text)

    def begin(self, key: Mapping[str, str]) -> None:
        """Forget all, and write for the conversion ``key``."""
        os.ftruncate(self._fd, 0)
        self._end, self.putting = 0, None
        self._written.clear()
        self.key = None
        self._write([Line(key=dict(key))])
        self.key = dict(key)

    def check(self, key: Mapping[str, str], where: Path) -> None:
        """Raise DestinationError where another conversion than ``key`` was begun."""
        found = self.key or {}
        differs = [text for name, text in CHANGED.items() if found.get(name) != key.get(name)]
        if found and differs:
            raise DestinationError(
                "--resume goes on with the conversion that was begun there, and this is another",
                where=where,
                problems=differs,
                remedy="without --resume it is begun anew",
            )

    def add(self, file: int, sums: Mapping[int, Summed]) -> None:
        """Parts of file number ``file`` are written."""
        self._write([Line(part=(file, i), digest=s.digest, crc=s.crc) for i, s in sums.items()])

    def put(self, output: Path, sync: bool) -> None:
        """``output`` is about to get its name."""
        found = output.stat()
        self._write([Line(putting=(found.st_dev, found.st_ino))])
        if sync:
            os.fsync(self._fd)

    def was_put(self, destination: Path) -> bool:
        """True where what lies at ``destination`` is the output that was about to be put there."""
        if self.putting is None or not destination.exists():
            return False
        found = destination.stat()
        return (found.st_dev, found.st_ino) == self.putting

    def _write(self, lines: Sequence[Line]) -> None:
        data = b"".join(msgspec.json.encode(line) + b"\n" for line in lines)
        while data:
            n = os.pwrite(self._fd, data, self._end)
            self._end += n
            data = data[n:]

    def recall(self, files: Sequence[OutFile], paths: Sequence[Path]) -> dict[Place, Summed]:
        """The parts that are written already at ``paths``, after another look at their bytes."""
        found: dict[Place, Summed] = {}
        for number, (file, path) in enumerate(zip(files, paths, strict=True)):
            if any(place[0] == number for place in self._written):
                found |= self._still(number, file, path)
        return found

    def _still(self, number: int, file: OutFile, path: Path) -> Iterator[tuple[Place, Summed]]:
        with path.open("rb") as f:
            offset = 0
            for i, part in enumerate(file.parts):
                said = self._written.get((number, i))
                if said is not None and _holds(f.fileno(), offset, part, said):
                    yield (number, i), said
                offset += part.nbytes


def _holds(fd: int, offset: int, part: Part, said: Summed) -> bool:
    """True where the bytes at ``offset`` are those of the part. What has no digest is written again."""
    if isinstance(part, Literal):
        return os.pread(fd, part.nbytes, offset) == part.data
    if not isinstance(part, TensorBytes):
        return False
    total = xxhash.xxh3_128()
    left = part.nbytes
    while left:
        data = os.pread(fd, min(left, BUFFER), offset)
        if not data:
            return False
        total.update(data)
        left, offset = left - len(data), offset + len(data)
    return total.hexdigest() == said.digest
