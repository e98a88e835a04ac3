"""Lowering: which bytes of which files, in order, are the row-major bytes of an expression.

An expression that only moves stretches of contiguous bytes becomes a list of runs; the tensor is
never decoded. ``lower`` gives None where that can't be done (a cast) or would not pay (a
transpose of a matrix moves single elements): ``remap.expr.blocks`` computes those.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise, product
from math import copysign, prod
from typing import Union

from remap.errors import Damaged, UsageError
from remap.expr.nodes import (
    Cast,
    Concat,
    Constant,
    Expr,
    Pad,
    Permute,
    Reshape,
    Same,
    Slice,
    Take,
    takes,
)
from remap.types import Derived, Scattered, Span

SMALLEST_RUN = 16 << 10
"""Bytes. Pieces below this cost more in system calls than computing the tensor does."""


@dataclass(frozen=True, slots=True)
class Fill:
    """``nbytes`` of zeros."""

    nbytes: int


@dataclass(frozen=True, slots=True)
class Copies:
    """Bytes that lie in several places, and have to be the same in all; ``names`` says what each is."""

    spans: tuple[Span, ...]
    names: tuple[str, ...]

    @property
    def nbytes(self) -> int:
        return self.spans[0].nbytes


Run = Union[Span, Fill, Copies]


def lower(expr: Expr) -> list[Run] | None:
    """The runs whose bytes, joined, are ``expr`` in row-major order; None where it is to be computed.

    Raises UsageError where a source tensor has no location (a key list has no bytes).
    """
    if isinstance(expr, Take):
        return _take(expr)
    if expr.spec.nbytes == 0:
        return []
    if isinstance(expr, Cast):
        return lower(expr.of) if expr.of.spec.dtype == expr.dtype else None
    if isinstance(expr, Reshape):
        return lower(expr.of)
    if isinstance(expr, Slice):
        return _slice(expr)
    if isinstance(expr, Concat):
        return _concat(expr)
    if isinstance(expr, Permute):
        return _permute(expr)
    if isinstance(expr, Pad):
        return _pad(expr)
    if isinstance(expr, Constant):
        return [Fill(expr.spec.nbytes)] if is_zero(expr.value) else None
    if isinstance(expr, Same):
        return _same(expr)
    return None  # arithmetic is to be done


def is_zero(value: float) -> bool:
    """Are all bytes of the number zero? Those of -0.0 are not."""
    return value == 0 and copysign(1, value) > 0


def _take(take: Take) -> list[Run] | None:
    where, spec = take.entry.location, take.spec
    if where is None:
        raise UsageError(
            "only the key list is known, there are no bytes to read",
            where=take.entry.key,
            remedy="give the checkpoint itself instead of its key list",
        )
    if spec.nbytes == 0:
        return []
    if isinstance(where, Derived):
        return lower(where.expr)
    if isinstance(where, Scattered):
        whole = _Joined()
        whole.extend(where.spans)
        return whole.runs
    if where.strides is None:
        return [Span(where.file, where.offset, spec.nbytes)]
    pieces = Pieces(spec.shape, where.strides)
    size = spec.dtype.itemsize
    if not pieces.worth_it(size):
        return None
    runs = _Joined()
    for start in pieces.starts():
        runs.add(Span(where.file, where.offset + start * size, pieces.length * size))
    return runs.runs


def _slice(node: Slice) -> list[Run] | None:
    shape = node.of.spec.shape
    inner = prod(shape[node.dim + 1 :]) * node.spec.dtype.itemsize
    outer = prod(shape[: node.dim])
    length = (node.stop - node.start) * inner
    if outer > 1 and length < SMALLEST_RUN:
        return None
    source = lower(node.of)
    if source is None:
        return None
    stream, out = Stream(source), _Joined()
    for i in range(outer):
        out.extend(stream.cut((i * shape[node.dim] + node.start) * inner, length))
    return out.runs


def _concat(node: Concat) -> list[Run] | None:
    outer = prod(node.spec.shape[: node.dim])
    lengths = [p.spec.nbytes // outer for p in node.parts]
    if outer > 1 and sum(lengths) < SMALLEST_RUN * len(lengths):
        return None
    lowered = [lower(p) for p in node.parts]
    streams = [Stream(runs) for runs in lowered if runs is not None]
    if len(streams) < len(lowered):
        return None
    out = _Joined()
    for i in range(outer):
        for stream, length in zip(streams, lengths, strict=True):
            out.extend(stream.cut(i * length, length))
    return out.runs


def _permute(node: Permute) -> list[Run] | None:
    strides = row_major(node.of.spec.shape)
    pieces = Pieces(node.spec.shape, tuple(strides[d] for d in node.dims))
    size = node.spec.dtype.itemsize
    if not pieces.worth_it(size):
        return None
    source = lower(node.of)
    if source is None:
        return None
    stream, out = Stream(source), _Joined()
    for start in pieces.starts():
        out.extend(stream.cut(start * size, pieces.length * size))
    return out.runs


def _pad(node: Pad) -> list[Run] | None:
    if not is_zero(node.value):
        return None
    shape = node.of.spec.shape
    inner = prod(shape[node.dim + 1 :]) * node.spec.dtype.itemsize
    outer = prod(shape[: node.dim])
    length = shape[node.dim] * inner
    if outer > 1 and length < SMALLEST_RUN:
        return None
    source = lower(node.of)
    if source is None:
        return None
    stream, out = Stream(source), _Joined()
    for i in range(outer):
        out.add(Fill(node.before * inner))
        out.extend(stream.cut(i * length, length))
        out.add(Fill(node.after * inner))
    return out.runs


def _same(node: Same) -> list[Run] | None:
    lowered = [lower(p) for p in node.parts]
    streams = [Stream(runs) for runs in lowered if runs is not None]
    if len(streams) < len(lowered):
        return None
    if len(lowered) == 1:
        return lowered[0]
    names = tuple(next(takes(p)).entry.key for p in node.parts)
    out: list[Run] = []
    for start, stop in pairwise(sorted({n for s in streams for n in s.starts})):
        pieces = [run for s in streams for run in s.cut(start, stop - start)]
        spans = tuple(p for p in pieces if isinstance(p, Span))
        if len(spans) < len(pieces):
            return None  # padding, or copies of copies
        out.append(Copies(spans, names))
    return out


def disagreement(first: str, others: Sequence[str]) -> Damaged:
    """The error for copies that differ: where the ``first`` is, a line for each of the ``others``."""
    return Damaged(
        "copies of one tensor do not agree",
        where=first,
        problems=others,
        remedy="the files are of different steps, or the run drifted apart: for model parts, --on-disagree "
        "first takes the first copies; or the tensors are not tied: some packs are told, -p tied=false",
    )


def row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides, in elements, of a tensor without gaps."""
    return tuple(accumulate(reversed(shape[1:]), initial=1, func=lambda a, b: a * b))[::-1] if shape else ()


class Pieces:
    """A strided view as equal contiguous pieces: ``length`` elements each, at ``starts()``."""

    def __init__(self, sizes: tuple[int, ...], strides: tuple[int, ...]) -> None:
        dims = [(n, s) for n, s in zip(sizes, strides, strict=True) if n != 1]
        self.length = 1
        while dims and dims[-1][1] == self.length:
            self.length *= dims.pop()[0]
        self._outer = dims

    def worth_it(self, itemsize: int) -> bool:
        """True where copying the pieces one by one is cheaper than computing the tensor."""
        return not self._outer or self.length * itemsize >= SMALLEST_RUN

    def starts(self) -> Iterator[int]:
        """The first element of each piece, in row-major order of the view."""
        for index in product(*(range(n) for n, _ in self._outer)):
            yield sum(i * s for i, (_, s) in zip(index, self._outer, strict=True))


class _Joined:
    """Runs in order; neighbours in one file become one run."""

    def __init__(self) -> None:
        self.runs: list[Run] = []

    def add(self, run: Run) -> None:
        if not run.nbytes:
            return
        last = self.runs[-1] if self.runs else None
        if isinstance(run, Fill) and isinstance(last, Fill):
            self.runs[-1] = Fill(last.nbytes + run.nbytes)
        elif (
            isinstance(run, Span)
            and isinstance(last, Span)
            and last.offset + last.nbytes == run.offset
            and last.file == run.file
        ):
            self.runs[-1] = Span(last.file, last.offset, last.nbytes + run.nbytes)
        else:
            self.runs.append(run)

    def extend(self, runs: Iterable[Run]) -> None:
        for run in runs:
            self.add(run)


class Stream:
    """Runs as one stretch of bytes that can be cut anywhere."""

    def __init__(self, runs: Sequence[Run]) -> None:
        self._runs = runs
        self.starts = list(accumulate((r.nbytes for r in runs), initial=0))

    def cut(self, start: int, nbytes: int) -> Iterator[Run]:
        """The runs that hold bytes ``start`` to ``start + nbytes`` of the stretch."""
        i = bisect_right(self.starts, start) - 1
        while nbytes:
            run, skip = self._runs[i], start - self.starts[i]
            length = min(run.nbytes - skip, nbytes)
            yield cut_run(run, skip, length)
            start, nbytes, i = start + length, nbytes - length, i + 1


def cut_run(run: Run, skip: int, nbytes: int) -> Run:
    """``nbytes`` of a run, from byte ``skip`` of it on."""
    if isinstance(run, Span):
        return Span(run.file, run.offset + skip, nbytes)
    if isinstance(run, Fill):
        return Fill(nbytes)
    return Copies(tuple(Span(s.file, s.offset + skip, nbytes) for s in run.spans), run.names)
