"""Pairs by content: equal digests prove a rename; a tensor may also be a transpose, a cast, reordered
for another way to rotate, or joined parts.

Every tensor is read once, and once more for each transformation that its shape allows. What is constant
(all zeros, all ones) proves nothing and is left to the names.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from remap.authoring.inference.fused import fused
from remap.authoring.inference.pairs import Pair, apart
from remap.dtypes import DType
from remap.expr import Cast, Expr, Permute, Slice, Take
from remap.ops.base import Scope
from remap.ops.registry import read_op
from remap.types import Catalog, Entry, TensorSpec
from remap.verify import digest, digests


def by_content(source: Catalog, target: Catalog) -> list[Pair]:
    """Every target that is some source's bytes, or made of them in a way that is recognised."""
    ours = _first_keys(source)
    found = list(_renamed(source, target, ours))
    done = {p.target for p in found}
    left = [e for e in target.entries.values() if e.key not in done]
    found += _transformed(source, left, ours)
    done |= {p.target for p in found}
    found += _joined(source, [e for e in left if e.key not in done], ours)
    done |= {p.target for p in found}
    used = {s for p in found for s in p.sources}
    unused = [e for k, e in source.entries.items() if k not in used]
    return [*found, *fused(unused, [e for e in left if e.key not in done])]


def _first_keys(source: Catalog) -> dict[str, list[str]]:
    """Digest -> keys, tied names left out."""
    entries = {k: Take(e) for k, e in source.entries.items() if k not in source.aliases}
    keys: dict[str, list[str]] = defaultdict(list)
    for key, found in digests(entries).items():
        keys[found].append(key)
    return dict(keys)


def _renamed(source: Catalog, target: Catalog, ours: Mapping[str, list[str]]) -> Iterator[Pair]:
    theirs: dict[str, list[str]] = defaultdict(list)
    for key, found in digests({k: Take(e) for k, e in target.entries.items()}).items():
        theirs[found].append(key)
    for found, targets in theirs.items():
        sources = [
            k for k in ours.get(found, ()) if source.entries[k].spec == target.entries[targets[0]].spec
        ]
        if len(sources) == 1 and len(targets) == 1:
            yield Pair((sources[0],), targets[0], None, "content")
        elif sources:
            yield from _told_apart(sources, targets)


def _told_apart(sources: list[str], targets: list[str]) -> Iterator[Pair]:
    """Several tensors with the same bytes: those of one number belong together, if that is unique."""
    numbers: dict[tuple[int, ...], list[str]] = defaultdict(list)
    for key in sources:
        numbers[apart(key)[1]].append(key)
    for key in targets:
        same = numbers.get(apart(key)[1], [])
        if len(same) == 1 and sum(apart(t)[1] == apart(key)[1] for t in targets) == 1:
            yield Pair((same[0],), key, None, "content")


def _transformed(source: Catalog, left: Iterable[Entry], ours: Mapping[str, list[str]]) -> Iterator[Pair]:
    """Targets that are a source's transpose or cast."""
    types = {e.spec.dtype for e in source.entries.values()}
    for entry in left:
        if len(entry.spec.shape) == 2:
            key = _single(ours, Permute(Take(entry), (1, 0)))
            if key is not None:
                yield Pair((key,), entry.key, "transpose", "content")
                continue
        turned = _turned(source, entry)
        if turned is not None:
            yield turned
        else:
            yield from _cast(source, entry, types, ours)


def _turned(source: Catalog, entry: Entry) -> Pair | None:
    """A target whose rows are a source's, reordered as for another way to rotate. The first row stays."""
    if not entry.spec.shape or entry.spec.shape[0] < 4:
        return None
    rows = entry.spec.shape[0]
    first, wanted = digest(Slice(Take(entry), 0, 0, 1)), digest(Take(entry))
    for other in source.entries.values():
        if other.spec != entry.spec or digest(Slice(Take(other), 0, 0, 1)) != first:
            continue
        for heads in (h for h in range(1, rows // 4 + 1) if rows % (2 * h) == 0):
            for before, after in (("half", "interleaved"), ("interleaved", "half")):
                arguments: dict[str, object] = {"heads": heads, "from": before, "to": after}
                (turned,) = read_op("rotary", arguments).build((Take(other),), Scope({}))
                if digest(turned) == wanted:
                    return Pair((other.key,), entry.key, {"rotary": arguments}, "content")
    return None


def _cast(
    source: Catalog, entry: Entry, types: Iterable[DType], ours: Mapping[str, list[str]]
) -> Iterator[Pair]:
    """Widening is seen by narrowing the target again; narrowing by narrowing sources of the same shape."""
    spec = entry.spec
    for other in types:
        if other == spec.dtype or not (other.is_float and spec.dtype.is_float):
            continue
        op: dict[str, object] = {"cast": {"to": spec.dtype.short, "from": other.short}}
        if other.itemsize < spec.dtype.itemsize:
            key = _single(ours, Cast(Take(entry), other))
            found = [key] if key is not None else []
        else:
            wanted = digest(Take(entry))
            same = [
                e for e in source.entries.values() if e.spec.dtype == other and e.spec.shape == spec.shape
            ]
            found = [e.key for e in same if digest(Cast(Take(e), spec.dtype)) == wanted]
        if len(found) == 1:
            yield Pair((found[0],), entry.key, op, "content")
            return


def _joined(source: Catalog, left: Iterable[Entry], ours: Mapping[str, list[str]]) -> Iterator[Pair]:
    """Targets whose rows are sources one after the other."""
    rows: dict[TensorSpec, set[int]] = defaultdict(set)
    for e in source.entries.values():
        if e.spec.shape:
            rows[_row(e)].add(e.spec.shape[0])
    for entry in left:
        sizes = rows.get(_row(entry), set()) if entry.spec.shape else set()
        parts = _cut(entry, sorted(sizes, reverse=True), ours)
        if parts is not None:
            yield Pair(parts, entry.key, {"concat": {"dim": 0}}, "content")


def _row(entry: Entry) -> TensorSpec:
    return TensorSpec(entry.spec.dtype, entry.spec.shape[1:])


def _cut(entry: Entry, sizes: list[int], ours: Mapping[str, list[str]]) -> tuple[str, ...] | None:
    """The sources whose rows, one after the other, are the entry; None where they are not found."""
    parts: list[str] = []
    at, total = 0, entry.spec.shape[0]
    while at < total:
        for size in sizes:
            if at + size <= total and size < total:
                key = _single(ours, Slice(Take(entry), 0, at, at + size))
                if key is not None:
                    parts.append(key)
                    at += size
                    break
        else:
            return None
    return tuple(parts) if len(parts) > 1 else None


def _single(ours: Mapping[str, list[str]], expr: Expr) -> str | None:
    """The one source with the bytes of ``expr``."""
    found = ours.get(digest(expr), [])
    return found[0] if len(found) == 1 else None
