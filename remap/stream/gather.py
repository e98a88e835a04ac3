"""Many short runs at a time: a matrix whose columns lie in several files, say.

The runs that fill a buffer are read file by file: those that follow one another in a file are one
system call, which puts each of them where it belongs in the buffer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from remap.errors import Damaged
from remap.expr.ranges import Copies, Fill, Run
from remap.files import Handle, preadv

SHORT = 1 << 16
"""Bytes. Runs from this length on are read one by one: the call is little beside the copy."""

AT_ONCE = 1024
"""Buffers that a call can fill: IOV_MAX of Linux."""


def gather(
    runs: Sequence[Run], start: int, into: memoryview, fd: Callable[[Path], Handle]
) -> tuple[int, int]:
    """Read short runs from number ``start`` on, as many as fit ``into`` one after another.

    Gives how many runs and bytes that were; (0, 0) where the first is not short, doesn't fit, or is to
    be compared. Raises Damaged where a file ends too early.
    """
    chains: dict[Path, _Chain] = {}
    filled = count = 0
    for number in range(start, len(runs)):
        run = runs[number]
        stop = filled + run.nbytes
        if run.nbytes >= SHORT or stop > len(into) or isinstance(run, Copies):
            break
        place = into[filled:stop]
        if isinstance(run, Fill):
            place[:] = bytes(run.nbytes)
        else:
            chain = chains.get(run.file)
            if chain is None or chain.stop != run.offset or len(chain.places) == AT_ONCE:
                if chain is not None:
                    chain.read(fd(run.file))
                chain = chains[run.file] = _Chain(run.file, run.offset)
            chain.places.append(place)
            chain.stop += run.nbytes
        filled = stop
        count += 1
    for chain in chains.values():
        chain.read(fd(chain.file))
    return count, filled


class _Chain:
    """A stretch of a file, and the places in memory that it goes to, in order."""

    __slots__ = ("file", "offset", "places", "stop")

    def __init__(self, file: Path, offset: int) -> None:
        self.file = file
        self.offset = self.stop = offset
        self.places: list[memoryview] = []

    def read(self, fd: Handle) -> None:
        """Fill the places."""
        offset, done = self.offset, 0
        while offset < self.stop:
            n = preadv(fd, self.places[done:] if done else self.places, offset)
            if not n:
                raise ended(self.file, offset, self.stop - offset)
            offset += n
            while done < len(self.places) and n >= len(self.places[done]):
                n -= len(self.places[done])
                done += 1
            if n:
                self.places[done] = self.places[done][n:]


def ended(file: Path, offset: int, missing: int) -> Damaged:
    """The error for a file that ends where bytes are wanted."""
    return Damaged(
        f"the file ends at byte {offset}, {missing} bytes too early",
        where=file,
        remedy="it changed while it was read, or is truncated; fetch it again",
    )
