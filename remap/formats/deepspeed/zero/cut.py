"""Finds weights in flat pieces: which bytes of which rank's file are a weight's, in order.

ZeRO-1 and 2 lay the weights of a group end to end, in the order of ``param_shapes``, and cut the whole
into as many equal parts as there are ranks: weights cross the cuts. ZeRO-3 cuts every weight by itself into
``ceil(numel / ranks)`` elements and lays a rank's pieces end to end; the last piece is filled up with
whatever was in memory. Source: DeepSpeed ``utils/zero_to_fp32.py``.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from math import prod

from remap.errors import Damaged, InputError
from remap.types import Entry, Location, Place, Scattered, Span, TensorSpec

Shapes = Mapping[str, tuple[int, ...]]
"""Name of a weight -> shape, in order."""


class Flat:
    """The flat tensors of all ranks for one group: weights, or one of the moments. Raises InputError for
    big-endian files, Damaged for pieces that do not belong together."""

    def __init__(self, pieces: Sequence[Entry]) -> None:
        for piece in pieces:
            if not isinstance(piece.location, Location):
                raise InputError("its bytes are not in this machine's order", where=piece.key)
            if piece.location.strides is not None or piece.spec.dtype != pieces[0].spec.dtype:
                raise Damaged(
                    f"a piece of {pieces[0].spec.dtype.name} is {piece.spec}"
                    + " with gaps" * (piece.location.strides is not None),
                    where=piece.location.file,
                )
        self._pieces = pieces
        self._starts = list(accumulate((p.spec.numel for p in pieces), initial=0))

    @property
    def numel(self) -> int:
        """Elements on all ranks."""
        return self._starts[-1]

    def joined(self, key: str, shape: tuple[int, ...], start: int) -> Entry:
        """The weight whose first element is number ``start`` of all pieces, one after another."""
        spans = list(self._between(start, start + prod(shape)))
        return self._entry(key, shape, spans)

    def apart(self, key: str, shape: tuple[int, ...], start: int) -> Entry:
        """The weight of which every rank has a piece, at element ``start`` of its own."""
        left = prod(shape)
        size = piece_size(left, len(self._pieces))
        spans = []
        for piece in self._pieces:
            held = min(size, left)
            spans.append(self._span(piece, start, held))
            left -= held
        return self._entry(key, shape, spans)

    def _between(self, start: int, stop: int) -> Iterator[Span]:
        i = bisect_right(self._starts, start) - 1
        while start < stop:
            end = min(stop, self._starts[i + 1])
            yield self._span(self._pieces[i], start - self._starts[i], end - start)
            start, i = end, i + 1

    def _span(self, piece: Entry, start: int, numel: int) -> Span:
        assert isinstance(piece.location, Location)
        size = piece.spec.dtype.itemsize
        return Span(piece.location.file, piece.location.offset + start * size, numel * size)

    def _entry(self, key: str, shape: tuple[int, ...], spans: Sequence[Span]) -> Entry:
        return Entry(key, TensorSpec(self._pieces[0].spec.dtype, shape), _place(spans, self._pieces[0]))


def _place(spans: Sequence[Span], first: Entry) -> Place:
    held = [s for s in spans if s.nbytes]
    if not held:  # a weight without elements
        assert isinstance(first.location, Location)
        return Location(first.location.file, first.location.offset)
    return Location(held[0].file, held[0].offset) if len(held) == 1 else Scattered(tuple(held))


def piece_size(numel: int, ranks: int) -> int:
    """Elements that every rank has of a weight that ZeRO-3 cuts, padding included."""
    return -(-numel // ranks)
