"""Pairs by content where query, key and value lie in one tensor, head by head.

Where the first row of each part lies in the whole says how large the heads are, and how they are grouped.
Nothing counts that the bytes do not prove.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from remap.authoring.inference.pairs import Pair
from remap.comparing.digests import digest
from remap.expr import Slice, Take
from remap.ops.base import Scope
from remap.ops.registry import read_op
from remap.types import Entry, TensorSpec

MOST = 1 << 16
"""Rows that a whole may have: each of them is read by itself."""


def fused(sources: Iterable[Entry], targets: Iterable[Entry]) -> Iterator[Pair]:
    """Targets that hold the rows of sources, and sources that hold those of targets."""
    ours, theirs = list(sources), list(targets)
    for whole, parts, op in _wholes(theirs, ours):
        yield Pair(parts, whole, ({"fuse_qkv": op},), "content")
    for whole, (first, *more), op in _wholes(ours, theirs):
        yield Pair((whole,), first, ({"split_qkv": op},), "content", tuple(more))


def _wholes(
    wholes: Iterable[Entry], parts: Iterable[Entry]
) -> Iterator[tuple[str, tuple[str, ...], dict[str, object]]]:
    """(whole, its parts in order, arguments of the fused projection)."""
    first: dict[tuple[TensorSpec, str], list[Entry]] = {}
    for part in parts:
        if part.spec.shape and part.spec.shape[0]:
            first.setdefault((_row(part), digest(Slice(Take(part), 0, 0, 1))), []).append(part)
    for whole in wholes:
        if whole.spec.shape and 1 < whole.spec.shape[0] <= MOST:
            places = _places(whole, first)
            if len(places) == 3 and sum(e.spec.shape[0] for e in places) == whole.spec.shape[0]:
                yield from _explained(whole, places)


def _row(entry: Entry) -> TensorSpec:
    return TensorSpec(entry.spec.dtype, entry.spec.shape[1:])


def _places(whole: Entry, first: Mapping[tuple[TensorSpec, str], list[Entry]]) -> dict[Entry, int]:
    """The parts whose first row lies in the whole, in the order of their places."""
    row = _row(whole)
    if not any(spec == row for spec, _ in first):
        return {}
    found: dict[Entry, int] = {}
    for n in range(whole.spec.shape[0]):
        same = first.get((row, digest(Slice(Take(whole), 0, n, n + 1))), [])
        if len(same) == 1:
            found.setdefault(same[0], n)
    return found


def _explained(
    whole: Entry, places: Mapping[Entry, int]
) -> Iterator[tuple[str, tuple[str, ...], dict[str, object]]]:
    parts = tuple(places)
    rows = [e.spec.shape[0] for e in parts]
    if rows[1] != rows[2] or rows[0] % rows[1]:
        return
    size, rest = divmod(places[parts[1]] * rows[1], rows[0])
    if rest or not size or rows[1] % size:
        return
    op: dict[str, object] = {"layout": "groups", "heads": rows[0] // size, "kv_heads": rows[1] // size}
    (made,) = read_op("fuse_qkv", op).build(tuple(Take(e) for e in parts), Scope({}))
    if digest(made) == digest(Take(whole)):
        yield whole.key, tuple(e.key for e in parts), op
