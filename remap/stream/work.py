"""Cutting files into tasks: stretches of one file that one thread writes in one go."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from remap.expr import Expr, Take, blocks, ranges
from remap.formats.base import CopiedBytes, OutFile, Part, TensorBytes
from remap.types import Scattered, Span

TASK_BYTES = 64 << 20
"""Small parts are gathered into tasks of about this size; a larger part is a task of its own."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a file, and its number in it."""

    number: int
    part: Part


@dataclass(frozen=True, slots=True)
class Task:
    """Pieces that follow one another in file number ``file``, from ``offset`` on."""

    file: int
    offset: int
    pieces: tuple[Piece, ...]


def tasks(files: Sequence[OutFile]) -> Iterator[Task]:
    """Every byte of ``files`` in tasks, in order."""
    for number, file in enumerate(files):
        gathered: list[Piece] = []
        start = offset = 0
        for i, part in enumerate(file.parts):
            if gathered and offset + part.nbytes - start > TASK_BYTES:
                yield Task(number, start, tuple(gathered))
                gathered, start = [], offset
            gathered.append(Piece(i, part))
            offset += part.nbytes
        if gathered:
            yield Task(number, start, tuple(gathered))


def runs_of(part: Part) -> list[ranges.Run] | None:
    """The runs of a part, None where its tensor is to be computed.

    Asked for when the part is written: a tensor that is scattered by columns has a million of them.
    """
    if isinstance(part, TensorBytes):
        return ranges.lower(part.expr)
    if isinstance(part, CopiedBytes):
        return [Span(part.file, part.offset, part.nbytes)]
    return []


def needs(files: Sequence[OutFile], budget: int) -> dict[str, int]:
    """Key -> most bytes that are held while its tensor is computed in blocks of about ``budget``."""
    return {
        p.key: blocks.peak(p.expr, budget)
        for f in files
        for p in f.parts
        if isinstance(p, TensorBytes) and not _is_listed(p.expr) and ranges.lower(p.expr) is None
    }


def _is_listed(expr: Expr) -> bool:
    """True where the reader says which bytes a tensor is: maybe a million runs, and nothing to compute."""
    return isinstance(expr, Take) and isinstance(expr.entry.location, Scattered)
