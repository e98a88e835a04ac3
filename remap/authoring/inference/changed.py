"""Pairs by content where one tensor was changed: cast, or its rows reordered for another way to rotate.

Each source is cast once to each type that is asked for, and the first row of each is read once: rows that
turn leave the first where it is.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from remap.authoring.inference.pairs import Pair
from remap.comparing.digests import digest
from remap.dtypes import DType
from remap.expr import Cast, Slice, Take
from remap.ops.base import Scope
from remap.ops.registry import read_op
from remap.types import Entry, TensorSpec

Found = dict[tuple[TensorSpec, str], list[Entry]]
"""Entries by what they are to be and its digest."""


def changed(sources: Iterable[Entry], targets: Iterable[Entry], digests: Mapping[str, str]) -> Iterator[Pair]:
    """Targets that are a changed source; ``digests`` are the sources', by key."""
    ours, theirs = list(sources), list(targets)
    specs = {e.spec for e in theirs}
    starts: Found = defaultdict(list)
    for e in ours:
        if e.spec in specs and e.spec.shape and e.spec.shape[0] >= 4:
            starts[e.spec, digest(Slice(Take(e), 0, 0, 1))].append(e)
    casts = _Casts(ours, digests)
    for entry in theirs:
        turned = _turned(entry, starts)
        cast = None if turned is not None else casts.of(entry)
        if turned is not None:
            yield turned
        elif cast is not None:
            yield cast


def _turned(entry: Entry, starts: Found) -> Pair | None:
    if not entry.spec.shape or entry.spec.shape[0] < 4:
        return None
    rows = entry.spec.shape[0]
    same = starts.get((entry.spec, digest(Slice(Take(entry), 0, 0, 1))), [])
    wanted = digest(Take(entry)) if same else ""
    for other in same:
        for heads in (h for h in range(1, rows // 4 + 1) if rows % (2 * h) == 0):
            for before, after in (("half", "interleaved"), ("interleaved", "half")):
                arguments: dict[str, object] = {"heads": heads, "from": before, "to": after}
                (turned,) = read_op("rotary", arguments).build((Take(other),), Scope({}))
                if digest(turned) == wanted:
                    return Pair((other.key,), entry.key, ({"rotary": arguments},), "content")
    return None


class _Casts:
    """Sources as they are in other types."""

    def __init__(self, ours: Sequence[Entry], digests: Mapping[str, str]) -> None:
        self.ours = ours
        self.types = [t for t in dict.fromkeys(e.spec.dtype for e in ours) if t.is_float]
        self.plain: Found = defaultdict(list)
        for e in ours:
            self.plain[e.spec, digests[e.key]].append(e)
        self.narrowed: dict[tuple[DType, TensorSpec], Found] = {}

    def of(self, entry: Entry) -> Pair | None:
        """The one source that the entry is in another type. Widening is seen by narrowing it again."""
        spec = entry.spec
        for kind in self.types if spec.dtype.is_float else ():
            if kind == spec.dtype:
                continue
            if kind.itemsize < spec.dtype.itemsize:
                back = Cast(Take(entry), kind)
                same = self.plain.get((back.spec, digest(back)), [])
            else:
                same = self._narrow(kind, spec).get((spec, digest(Take(entry))), [])
            if len(same) == 1:
                op: dict[str, object] = {"cast": {"to": spec.dtype.short, "from": kind.short}}
                return Pair((same[0].key,), entry.key, (op,), "content")
        return None

    def _narrow(self, kind: DType, spec: TensorSpec) -> Found:
        if (kind, spec) not in self.narrowed:
            found = self.narrowed[kind, spec] = defaultdict(list)
            for e in self.ours:
                if e.spec == TensorSpec(kind, spec.shape):
                    found[spec, digest(Cast(Take(e), spec.dtype))].append(e)
        return self.narrowed[kind, spec]
