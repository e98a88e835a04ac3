"""A tensor that parts were put together to -> which parts, and how. Only what the bytes prove.

A whole is a part, parts one after the other, or their rows by turns; each of these perhaps transposed, and
each of these perhaps once for every place of the leading dimension (the experts of a layer).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from remap.authoring.inference.pairs import MEMBER, Step, counted
from remap.comparing.digests import digest
from remap.expr import Expr, Permute, Reshape, Slice, Take
from remap.ops.base import Scope
from remap.ops.registry import read_op
from remap.types import Entry, TensorSpec

MOST_TURNS = 3
"""Parts whose rows may lie by turns."""


@dataclass(frozen=True, slots=True)
class Recognised:
    """Parts, member by member, the steps that join them, and the number that counts the members."""

    parts: tuple[str, ...]
    steps: tuple[Step, ...]
    slot: int | None = None
    members: int = 1

    @property
    def each(self) -> int:
        """Parts of a member."""
        return len(self.parts) // self.members


class Parts:
    """Tensors that wholes may be made of, found by their bytes."""

    def __init__(self, entries: Iterable[Entry], digests: Mapping[str, str]) -> None:
        self.entries = {e.key: e for e in entries}
        self._keys: dict[str, list[str]] = defaultdict(list)
        rows: dict[TensorSpec, set[int]] = defaultdict(set)
        for entry in self.entries.values():
            self._keys[digests[entry.key]].append(entry.key)
            if entry.spec.shape:
                rows[_row(entry.spec)].add(entry.spec.shape[0])
        self._sizes = {row: sorted(sizes, reverse=True) for row, sizes in rows.items()}

    def single(self, expr: Expr) -> str | None:
        """The one part that is ``expr``."""
        found = self._keys.get(digest(expr), [])
        return found[0] if len(found) == 1 and self.entries[found[0]].spec == expr.spec else None

    def rows(self, expr: Expr) -> tuple[str, ...]:
        """The parts that are ``expr`` one after the other; none where they are not found."""
        parts: list[str] = []
        at, total = 0, expr.spec.shape[0]
        sizes = [s for s in self._sizes.get(_row(expr.spec), ()) if s and s < total]
        while at < total:
            for size in sizes:
                key = self.single(Slice(expr, 0, at, at + size)) if at + size <= total else None
                if key is not None:
                    parts.append(key)
                    at += size
                    break
            else:
                return ()
        return tuple(parts)

    def turns(self, expr: Expr) -> tuple[str, ...]:
        """The parts whose rows lie in ``expr`` by turns; none where they are not found."""
        total = expr.spec.shape[0]
        sizes = self._sizes.get(_row(expr.spec), ())
        for count in (n for n in range(2, MOST_TURNS + 1) if total % n == 0 and total // n in sizes):
            views = read_op("deinterleave", {}).build((expr,), Scope({}, count))
            keys = [self.single(view) for view in views]
            if all(keys):
                return tuple(k for k in keys if k is not None)
        return ()


def recognised(whole: Entry, parts: Parts) -> Recognised | None:
    """How the whole is made of parts; None where that is not known."""
    return _flat(Take(whole), parts) or _stacked(whole, parts)


def _row(spec: TensorSpec) -> TensorSpec:
    return TensorSpec(spec.dtype, spec.shape[1:])


def _flat(expr: Expr, parts: Parts) -> Recognised | None:
    if not expr.spec.shape or not expr.spec.numel:
        return None
    for turned in (False, True) if len(expr.spec.shape) == 2 else (False,):
        view = Permute(expr, (1, 0)) if turned else expr
        last: tuple[Step, ...] = ("transpose",) if turned else ()
        key = parts.single(view)
        if key is not None:
            return Recognised((key,), last)
        keys = parts.rows(view)
        if keys:
            return _concat(keys, parts, last)
        keys = parts.turns(view)
        if keys:
            return Recognised(keys, ({"interleave": {"dim": 0}}, *last))
    return None


def _concat(keys: tuple[str, ...], parts: Parts, last: tuple[Step, ...]) -> Recognised:
    """Parts that are numbered from 0 are joined over their number, others as a list."""
    rows = [parts.entries[k].spec.shape[0] for k in keys]
    slot = counted([(k,) for k in keys]) if len(set(rows)) == 1 else None
    if slot is not None:
        step: Step = {"concat": {"dim": 0, "over": MEMBER, "parts": len(keys)}}
        return Recognised(keys, (step, *last), slot, len(keys))
    equal: dict[str, object] = {} if len(set(rows)) == 1 else {"sizes": rows}
    return Recognised(keys, ({"concat": {"dim": 0, **equal}}, *last))


def _stacked(whole: Entry, parts: Parts) -> Recognised | None:
    shape = whole.spec.shape
    if len(shape) < 2 or shape[0] < 2:
        return None
    members: list[Recognised] = []
    for n in range(shape[0]):
        one = _flat(Reshape(Slice(Take(whole), 0, n, n + 1), shape[1:]), parts)
        if one is None or one.slot is not None or (members and one.steps != members[0].steps):
            return None
        members.append(one)
    slot = counted([m.parts for m in members])
    if slot is None:
        return None
    keys = tuple(k for m in members for k in m.parts)
    return Recognised(keys, (*members[0].steps, {"stack": {"over": MEMBER}}), slot, len(members))
