"""Flat tensors: one long row of elements, joined from pieces and cut anywhere.

A unit of FSDP is one flat tensor: its parameters one after another, each in row-major order. Over W
ranks it is cut into shards of ``ceil(n / W)`` elements, the last ones filled up with zeros, perhaps
wholly (5 elements on 4 ranks: 2, 2, 1 + 1, 0 + 2). Source: fairscale
``fully_sharded_data_parallel.py`` (``_get_shard``), ``flatten_params_wrapper.py``.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

from remap.dtypes import DType
from remap.expr import Cast, Concat, Expr, Pad, Reshape, Slice


def shard_size(numel: int, world: int) -> int:
    """Elements of every shard of a flat tensor, padding included."""
    return -(-numel // world)


def shard_padding(numel: int, world: int, rank: int) -> int:
    """How many of the elements of shard ``rank`` are padding."""
    size = shard_size(numel, world)
    return size - min(max(numel - rank * size, 0), size)


@dataclass(frozen=True)
class Line:
    """A flat tensor without padding: one-dimensional pieces, one after another."""

    pieces: tuple[Expr, ...]

    @classmethod
    def of_shards(cls, shards: Sequence[Expr], numel: int) -> Line:
        """The first ``numel`` elements of all shards, joined."""
        kept: list[Expr] = []
        left = numel
        for shard in shards:
            size = shard.spec.shape[0]
            kept.append(shard if size <= left else Slice(shard, 0, 0, left))
            left -= min(size, left)
        return cls(tuple(k for k in kept if k.spec.numel) or (kept[0],))

    @classmethod
    def of_tensors(cls, tensors: Iterable[Expr]) -> Line:
        """The elements of every tensor, one tensor after another."""
        return cls(tuple(Reshape(t, (t.spec.numel,)) for t in tensors))

    @cached_property
    def _starts(self) -> list[int]:
        return list(accumulate((p.spec.numel for p in self.pieces), initial=0))

    @property
    def numel(self) -> int:
        """Number of elements."""
        return self._starts[-1]

    @property
    def dtype(self) -> DType:
        """Type of the elements."""
        return self.pieces[0].spec.dtype

    def cut(self, start: int, stop: int) -> Expr:
        """Elements ``start`` to ``stop``, of no more pieces than hold them."""
        parts: list[Expr] = []
        i = max(0, min(bisect_right(self._starts, start) - 1, len(self.pieces) - 1))
        while start < stop:
            piece, first = self.pieces[i], self._starts[i]
            end = min(self._starts[i + 1], stop)
            if end > start:
                whole = start == first and end == self._starts[i + 1]
                parts.append(piece if whole else Slice(piece, 0, start - first, end - first))
            start, i = max(start, end), i + 1
        if not parts:
            return Slice(self.pieces[0], 0, 0, 0)
        return parts[0] if len(parts) == 1 else Concat(tuple(parts))

    def shard(self, rank: int, world: int, dtype: DType | None = None) -> Expr:
        """Shard ``rank`` of ``world``, padded, cast to ``dtype`` where that is a float's."""
        size = shard_size(self.numel, world)
        start = min(rank * size, self.numel)
        held = cast(self.cut(start, min(start + size, self.numel)), dtype)
        padding = shard_padding(self.numel, world, rank)
        return Pad(held, 0, 0, padding) if padding else held

    def tensors(self, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Expr]:
        """The tensors that lie one after another in it, by name."""
        out: dict[str, Expr] = {}
        start = 0
        for name, shape in shapes.items():
            stop = start + _numel(shape)
            out[name] = Reshape(self.cut(start, stop), shape)
            start = stop
        return out


def cast(expr: Expr, dtype: DType | None) -> Expr:
    """``expr`` in another type, where both are floats; else as it is."""
    if dtype is None or not expr.spec.dtype.is_float or expr.spec.dtype == dtype:
        return expr
    return Cast(expr, dtype)


def _numel(shape: tuple[int, ...]) -> int:
    n = 1
    for size in shape:
        n *= size
    return n
