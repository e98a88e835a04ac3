"""A tensor that was saved in boxes, put together: which bytes of which files are its row-major bytes.

In: the shape of the whole, and boxes (where each begins, its sizes, where its bytes lie). Out: one
location. Boxes may be cut along any dimensions; copies of one box count once. A gap or an overlap
is named.

A matrix that is cut by columns lies in a span for every row and cut. Rows that are cut alike are
described once, and their spans are made while they are gone through.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from math import prod
from pathlib import Path
from typing import Union, overload

from remap.errors import Damaged, InputError
from remap.expr.ranges import row_major
from remap.types import Location, Scattered, Span, TensorSpec

MOST_SPANS = 1 << 24
"""Rows of the largest matrices times the ranks of a node are half a million; a file could claim more."""


@dataclass(frozen=True, slots=True)
class Box:
    """A part of a tensor, stored at ``place``: from ``offsets`` on, of ``sizes``, a number a dimension."""

    offsets: tuple[int, ...]
    sizes: tuple[int, ...]
    place: Location

    @property
    def numel(self) -> int:
        """Number of elements."""
        return prod(self.sizes)

    @property
    def strides(self) -> tuple[int, ...]:
        """Of its elements where they lie."""
        return self.place.strides or row_major(self.sizes)

    def __str__(self) -> str:
        return f"[{', '.join(f'{o}:{o + n}' for o, n in zip(self.offsets, self.sizes, strict=True))}]"


def assemble(spec: TensorSpec, boxes: Sequence[Box], where: object) -> Location | Scattered:
    """Where the whole tensor lies: in one place, or in spans.

    where  file and key, for messages

    Raises Damaged where the boxes leave a gap, overlap, or reach out of the tensor.
    """
    _check_inside(spec, boxes, where)
    unique = {(b.offsets, b.sizes): b for b in reversed(boxes) if b.numel}
    parts = sorted(unique.values(), key=lambda b: b.offsets)
    if spec.numel == 0:
        return boxes[0].place if boxes else Location(Path(str(where)), 0)
    if len(parts) == 1 and parts[0].sizes == spec.shape:
        return parts[0].place
    held = sum(b.numel for b in parts)
    if held > spec.numel:
        raise Damaged(
            f"its parts overlap: {held} elements for a tensor of {spec.numel}",
            where=where,
            problems=map(str, parts),
        )
    spans = Spans(tuple(_Assembly(spec, where).along(0, parts, ())))
    if len(spans) > MOST_SPANS:
        raise InputError(f"it lies in more than {MOST_SPANS} pieces", where=where)
    first = list(islice(spans, 2))
    if len(first) == 1:
        return Location(first[0].file, first[0].offset)
    return Scattered(spans)


def _check_inside(spec: TensorSpec, boxes: Sequence[Box], where: object) -> None:
    outside = [
        str(b)
        for b in boxes
        if len(b.sizes) != len(spec.shape)
        or any(
            o < 0 or n < 0 or o + n > size for o, n, size in zip(b.offsets, b.sizes, spec.shape, strict=True)
        )
    ]
    if outside:
        raise Damaged(
            f"parts lie outside of the tensor, whose shape is {list(spec.shape)}",
            where=where,
            problems=outside,
        )


@dataclass(frozen=True, slots=True)
class _Stretch:
    """Bytes that lie together; ``steps`` is how far they move with each index, in bytes."""

    file: Path
    offset: int
    nbytes: int
    steps: tuple[int, ...]

    def start(self, index: tuple[tuple[int, int], ...]) -> int:
        """Where it begins in those rows: (dimension, number)."""
        return self.offset + sum(i * self.steps[dim] for dim, i in index)


@dataclass(frozen=True, slots=True)
class _Rows:
    """The same for ``count`` values of the index of ``dim``; ``row`` is the first of them."""

    dim: int
    count: int
    row: tuple[_Node, ...]


_Node = Union[_Stretch, _Rows]


class Spans(Sequence[Span]):
    """The spans of a tensor, made while they are gone through."""

    def __init__(self, nodes: tuple[_Node, ...]) -> None:
        self._nodes = nodes

    def __iter__(self) -> Iterator[Span]:
        return _joined(_spans(self._nodes, ()))

    def __len__(self) -> int:
        """How many there are before neighbours in a file are joined."""
        return _count(self._nodes)

    @overload
    def __getitem__(self, index: int) -> Span: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Span]: ...
    def __getitem__(self, index: int | slice) -> Span | Sequence[Span]:
        if index == 0:
            return next(iter(self))
        return list(self)[index]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Spans) and self._nodes == other._nodes

    def __hash__(self) -> int:
        return hash(self._nodes)


def _spans(nodes: Sequence[_Node], index: tuple[tuple[int, int], ...]) -> Iterator[Span]:
    """``index`` has (dimension, number) of the rows that are gone through."""
    for node in nodes:
        if isinstance(node, _Stretch):
            yield Span(node.file, node.start(index), node.nbytes)
        elif all(isinstance(n, _Stretch) for n in node.row):
            row = [(n.file, n.start(index), n.nbytes, n.steps[node.dim]) for n in node.row]  # type: ignore[union-attr]
            for i in range(node.count):
                for file, offset, nbytes, step in row:
                    yield Span(file, offset + i * step, nbytes)
        else:
            for i in range(node.count):
                yield from _spans(node.row, (*index, (node.dim, i)))


def _count(nodes: Sequence[_Node]) -> int:
    return sum(n.count * _count(n.row) if isinstance(n, _Rows) else 1 for n in nodes)


class _Assembly:
    """Walks the whole tensor in row-major order and finds the box that each stretch lies in."""

    def __init__(self, spec: TensorSpec, where: object) -> None:
        self._shape = spec.shape
        self._itemsize = spec.dtype.itemsize
        self._inner = row_major(spec.shape)
        self._where = where

    def along(self, dim: int, boxes: Sequence[Box], index: tuple[int, ...]) -> Iterator[_Node]:
        """What lies at ``index``, whose length is ``dim``; ``boxes`` are those that hold some of it."""
        if dim == len(self._shape):
            yield self._one(boxes, index)
            return
        cuts = sorted({c for b in boxes for c in (b.offsets[dim], b.offsets[dim] + b.sizes[dim])})
        if not cuts or cuts[0] != 0 or cuts[-1] != self._shape[dim]:
            raise self._gap(index)
        by_interval = _by_interval(boxes, dim, cuts)
        for first, stop in pairwise(cuts):
            held = by_interval.get(first, [])
            if not held:
                raise self._gap((*index, first))
            if len(held) == 1 and self._is_whole(held[0], dim):
                yield self._stretch(held[0], (*index, first), (stop - first) * self._inner[dim])
            else:
                yield _Rows(dim, stop - first, tuple(self.along(dim + 1, held, (*index, first))))

    def _is_whole(self, box: Box, dim: int) -> bool:
        """True where rows of ``dim`` lie in the box as they lie in the tensor: complete, without gaps."""
        sides = zip(box.sizes[dim:], box.strides[dim:], self._inner[dim:], strict=True)
        whole = box.sizes[dim + 1 :] == self._shape[dim + 1 :]
        return whole and all(n == 1 or stride == inner for n, stride, inner in sides)

    def _one(self, boxes: Sequence[Box], index: tuple[int, ...]) -> _Stretch:
        if len(boxes) != 1:
            raise Damaged(f"its parts overlap at {list(index)}", where=self._where, problems=map(str, boxes))
        return self._stretch(boxes[0], index, 1)

    def _stretch(self, box: Box, index: tuple[int, ...], numel: int) -> _Stretch:
        """``numel`` elements from ``index`` on; the dimensions that it lacks are at their start."""
        full = (*index, *(0,) * (len(self._shape) - len(index)))
        element = sum((i - o) * s for i, o, s in zip(full, box.offsets, box.strides, strict=True))
        size = self._itemsize
        steps = tuple(s * size for s in box.strides)
        return _Stretch(box.place.file, box.place.offset + element * size, numel * size, steps)

    def _gap(self, index: tuple[int, ...]) -> Damaged:
        return Damaged(
            f"a part of it is missing, from element {list(index)} of shape {list(self._shape)} on",
            where=self._where,
            remedy="fetch all of the checkpoint's files",
        )


def _by_interval(boxes: Sequence[Box], dim: int, cuts: list[int]) -> dict[int, list[Box]]:
    """Start of each interval between ``cuts`` -> the boxes that reach over it."""
    index = {cut: i for i, cut in enumerate(cuts)}
    found: dict[int, list[Box]] = {}
    for box in boxes:
        first, stop = box.offsets[dim], box.offsets[dim] + box.sizes[dim]
        for i in range(index[first], index[stop]):
            found.setdefault(cuts[i], []).append(box)
    return found


def _joined(spans: Iterator[Span]) -> Iterator[Span]:
    """Neighbours in one file become one span."""
    last: Span | None = None
    for span in spans:
        if last is not None and last.offset + last.nbytes == span.offset and last.file == span.file:
            last = Span(last.file, last.offset, last.nbytes + span.nbytes)
            continue
        if last is not None:
            yield last
        last = span
    if last is not None:
        yield last
