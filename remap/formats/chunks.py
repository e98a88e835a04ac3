"""A tensor that was saved in boxes, put together: which bytes of which files are its row-major bytes.

In: the shape of the whole, and boxes (where each begins, its sizes, where its bytes lie). Out: one
location. Boxes may be cut along any dimensions; copies of one box count once. A gap or an overlap
is named.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from math import prod
from pathlib import Path

from remap.errors import Damaged, InputError
from remap.expr.ranges import row_major
from remap.types import Location, Scattered, Span, TensorSpec

MOST_SPANS = 1 << 22
"""Rows of the largest matrices times the ranks of a node: 512 Ki. A file could claim any number."""


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
    spans = tuple(islice(_joined(_Assembly(spec, where).spans(parts)), MOST_SPANS + 1))
    if len(spans) > MOST_SPANS:
        raise InputError(f"it lies in more than {MOST_SPANS} pieces", where=where)
    if len(spans) == 1:
        return Location(spans[0].file, spans[0].offset)
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


class _Assembly:
    """Walks the whole tensor in row-major order and finds the box that each stretch lies in."""

    def __init__(self, spec: TensorSpec, where: object) -> None:
        self._shape = spec.shape
        self._itemsize = spec.dtype.itemsize
        self._inner = row_major(spec.shape)
        self._where = where

    def spans(self, boxes: Sequence[Box]) -> Iterator[Span]:
        """The row-major bytes of the tensor."""
        return (span for _, span in self._along(0, boxes, ()))

    def _along(self, dim: int, boxes: Sequence[Box], index: tuple[int, ...]) -> Iterator[tuple[Box, Span]]:
        """The bytes at ``index``, whose length is ``dim``, each stretch with its box; ``boxes`` are those
        that hold some of them."""
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
                yield held[0], self._span(held[0], (*index, first), (stop - first) * self._inner[dim])
                continue
            row = [
                (b, s, _strides(b)[dim] * self._itemsize)
                for b, s in self._along(dim + 1, held, (*index, first))
            ]
            for i in range(stop - first):  # the rows are alike
                for box, span, step in row:
                    yield box, Span(span.file, span.offset + i * step, span.nbytes)

    def _is_whole(self, box: Box, dim: int) -> bool:
        """True where rows of ``dim`` lie in the box as they lie in the tensor: complete, without gaps."""
        strides = _strides(box)
        return box.sizes[dim + 1 :] == self._shape[dim + 1 :] and all(
            n == 1 or s == inner
            for n, s, inner in zip(box.sizes[dim:], strides[dim:], self._inner[dim:], strict=True)
        )

    def _one(self, boxes: Sequence[Box], index: tuple[int, ...]) -> tuple[Box, Span]:
        if len(boxes) != 1:
            raise Damaged(f"its parts overlap at {list(index)}", where=self._where, problems=map(str, boxes))
        return boxes[0], self._span(boxes[0], index, 1)

    def _span(self, box: Box, index: tuple[int, ...], numel: int) -> Span:
        """``numel`` elements from ``index`` on; the dimensions that it lacks are at their start."""
        strides = _strides(box)
        full = (*index, *(0,) * (len(self._shape) - len(index)))
        element = sum((i - o) * s for i, o, s in zip(full, box.offsets, strides, strict=True))
        return Span(box.place.file, box.place.offset + element * self._itemsize, numel * self._itemsize)

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


def _strides(box: Box) -> tuple[int, ...]:
    return box.place.strides or row_major(box.sizes)


def _joined(spans: Iterator[Span]) -> Iterator[Span]:
    """Neighbours in one file become one span."""
    last: Span | None = None
    for span in spans:
        if last is not None and last.file == span.file and last.offset + last.nbytes == span.offset:
            last = Span(last.file, last.offset, last.nbytes + span.nbytes)
            continue
        if last is not None:
            yield last
        last = span
    if last is not None:
        yield last
