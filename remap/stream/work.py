"""Cutting files into tasks: stretches of one file that one thread writes in one go."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from remap.expr import Take, blocks, ranges
from remap.expr.boxes import nbytes
from remap.expr.products import Box
from remap.formats.base import CopiedBytes, OutFile, Part, TensorBytes
from remap.types import Location, Scattered, Span

TASK_BYTES = 64 << 20
"""Small parts are gathered into tasks of about this size; a larger part is a task of its own."""

LARGE = 64 << 20
"""Bytes. Tasks from here on are begun first."""

Place = tuple[int, int]
"""A part: the number of its file, and its own number in the file."""


@dataclass(frozen=True, slots=True)
class Task:
    """Parts that follow one another in file number ``file``; number ``first`` begins at ``offset``."""

    file: int
    offset: int
    first: int
    parts: tuple[Part, ...]

    @property
    def nbytes(self) -> int:
        return sum(p.nbytes for p in self.parts)

    @property
    def places(self) -> set[Place]:
        """The parts that it writes."""
        return {(self.file, i) for i in range(self.first, self.first + len(self.parts))}


@dataclass(frozen=True, slots=True)
class BlockTask:
    """Block ``number`` of ``count`` of a computed tensor, which is part ``first`` of its file."""

    file: int
    offset: int
    first: int
    part: TensorBytes
    box: Box
    number: int
    count: int

    @property
    def nbytes(self) -> int:
        return self.part.nbytes

    @property
    def places(self) -> set[Place]:
        """The part of which it writes a piece."""
        return {(self.file, self.first)}


def tasks(
    files: Sequence[OutFile], computed: Collection[Place] = (), budget: int = 0
) -> Iterator[Task | BlockTask]:
    """Every byte of ``files`` in tasks, in order. A large tensor among the ``computed`` is a task for each
    block of at most ``budget`` bytes, so that all threads work on it."""
    for number, file in enumerate(files):
        first = start = offset = 0
        for i, part in enumerate(file.parts):
            large = part.nbytes > TASK_BYTES and (number, i) in computed
            if i > first and (large or offset + part.nbytes - start > TASK_BYTES):
                yield Task(number, start, first, file.parts[first:i])
                first, start = i, offset
            if large and isinstance(part, TensorBytes):
                yield from _block_tasks(number, offset, i, part, budget)
                first, start = i + 1, offset + part.nbytes
            offset += part.nbytes
        if first < len(file.parts):
            yield Task(number, start, first, file.parts[first:])


def _block_tasks(file: int, offset: int, number: int, part: TensorBytes, budget: int) -> Iterator[BlockTask]:
    boxes = list(blocks.boxes(part.expr, budget))
    for i, box in enumerate(boxes):
        yield BlockTask(file, offset, number, part, box, i, len(boxes))
        offset += nbytes(part.expr, box)


def largest_first(work: Sequence[Task | BlockTask]) -> list[Task | BlockTask]:
    """Large tensors before all else, so that no thread is left alone with one; the rest in order."""
    return sorted(work, key=lambda task: -max(task.nbytes, LARGE))


def runs_of(part: Part) -> list[ranges.Run] | None:
    """The runs of a part, None where its tensor is to be computed.

    Asked for when the part is written: a tensor that is scattered by columns has a million of them.
    """
    if isinstance(part, TensorBytes):
        return ranges.lower(part.expr)
    if isinstance(part, CopiedBytes):
        return [Span(part.file, part.offset, part.nbytes)]
    return []


def stretch(part: Part) -> Span | None:
    """The one stretch of a source that a part is, None where it is more, or to be looked into."""
    if isinstance(part, CopiedBytes):
        return Span(part.file, part.offset, part.nbytes)
    if isinstance(part, TensorBytes) and isinstance(part.expr, Take):
        where = part.expr.entry.location
        if isinstance(where, Location) and where.strides is None:
            return Span(where.file, where.offset, part.nbytes)
    return None


def computed(files: Sequence[OutFile]) -> dict[Place, TensorBytes]:
    """The tensors that are no runs."""
    return {
        (number, i): part
        for number, file in enumerate(files)
        for i, part in enumerate(file.parts)
        if isinstance(part, TensorBytes)
        and not (stretch(part) or _is_listed(part))
        and ranges.lower(part.expr) is None
    }


def _is_listed(part: TensorBytes) -> bool:
    """True where the reader says which bytes a tensor is: maybe a million runs, and nothing to compute."""
    return isinstance(part.expr, Take) and isinstance(part.expr.entry.location, Scattered)
