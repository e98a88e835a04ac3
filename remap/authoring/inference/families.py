"""Keys -> families: the keys of one skeleton, by their numbers.

``composed`` puts families together as conversions do, so that they can be compared with what is one tensor
elsewhere: query, key and value; gate and up; the experts of a layer; each perhaps transposed.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import gcd

from remap.authoring.inference.pairs import MEMBER, Numbers, Step, apart
from remap.authoring.inference.words import words
from remap.types import Entry, TensorSpec

TOGETHER = {("q", "k", "v"): "query, key and value", ("gate", "up"): "gate and up"}
"""Words of tensors that projects keep as one."""


@dataclass(frozen=True, eq=False)
class Family:
    """Tensors by the numbers in their names; ``rank`` is where they stand in the file, from 0 to 1.

    keys     what each is made of: its own key, or parts, member by member
    steps    the ops that make it of them
    slot     the number that counts the members of a stack
    parts    keys of a member
    confirm  what can't be known from names and shapes
    of       the names of the families that it is made of
    """

    skeleton: str
    specs: Mapping[Numbers, TensorSpec]
    keys: Mapping[Numbers, tuple[str, ...]]
    rank: float
    steps: tuple[Step, ...] = ()
    slot: int | None = None
    parts: int = 1
    confirm: str = ""

    of: tuple[str, ...] = ()

    @property
    def shifted(self) -> tuple[Numbers, ...]:
        """The numbers, counted from the smallest of each."""
        smallest = tuple(map(min, zip(*self.specs, strict=True)))
        return tuple(sorted(tuple(n - s for n, s in zip(ns, smallest, strict=True)) for ns in self.specs))

    @property
    def varying(self) -> tuple[Numbers, ...]:
        """The shifted numbers without those that never change."""
        columns = [c for c in zip(*self.shifted, strict=True) if len(set(c)) > 1]
        return tuple(zip(*columns, strict=True)) if columns else ((),) * len(self.specs)

    @property
    def ordered(self) -> tuple[TensorSpec, ...]:
        """Specs in the order of the numbers."""
        return tuple(self.specs[n] for n in sorted(self.specs))


def families(entries: Iterable[Entry]) -> list[Family]:
    """The keys by skeleton; one whose shapes differ along a number is several, one for each value."""
    grouped: dict[str, dict[Numbers, Entry]] = defaultdict(dict)
    ranks: dict[str, int] = {}
    count = 0
    for entry in entries:
        skel, numbers = apart(entry.key)
        grouped[skel][numbers] = entry
        ranks.setdefault(skel, count)
        count += 1
    found: list[Family] = []
    for skel, members in grouped.items():
        specs = {n: e.spec for n, e in members.items()}
        keys = {n: (e.key,) for n, e in members.items()}
        found += _split(Family(skel, specs, keys, ranks[skel] / max(count, 1), of=(skel,)))
    return found


def _split(family: Family) -> Iterator[Family]:
    """``mlp.0.weight`` and ``mlp.2.weight`` of different shapes are two names, not one with a number."""
    for slot in range(len(next(iter(family.specs)))):
        values = sorted({n[slot] for n in family.specs})
        if len(values) < 2:
            continue
        parts = {v: [n for n in family.specs if n[slot] == v] for v in values}
        specs = {v: {family.specs[n] for n in part} for v, part in parts.items()}
        if all(len(s) == 1 for s in specs.values()) and len({next(iter(s)) for s in specs.values()}) > 1:
            for value, part in parts.items():
                name = _with(family.skeleton, slot, f"#{value}")
                yield Family(
                    name,
                    {n: family.specs[n] for n in part},
                    {n: family.keys[n] for n in part},
                    family.rank,
                    of=(name,),
                )
            return
    yield family


def _with(skeleton: str, slot: int, text: str) -> str:
    """The skeleton with its number ``slot`` replaced by a text; without it, where there is none."""
    segments = skeleton.split(".")
    place = [i for i, s in enumerate(segments) if s.startswith("#")][slot]
    segments[place : place + 1] = [text] if text else []
    return ".".join(segments)


def composed(several: Sequence[Family]) -> list[Family]:
    """What the families make together: joined, stacked, transposed."""
    joined = list(_joined(several))
    stacked = [s for f in (*several, *joined) for s in _stacked(f, turned=False)]
    turned = [t for f in (*several, *joined) for t in _turned(f)]
    return [*joined, *stacked, *turned, *(s for f in turned for s in _stacked(f, turned=True))]


def _joined(several: Iterable[Family]) -> Iterator[Family]:
    """Families whose names differ in one word of a set that is kept together."""
    for together, named in TOGETHER.items():
        stems: dict[tuple[str, tuple[Numbers, ...]], dict[str, Family]] = defaultdict(dict)
        for family in several:
            stem, word = _stem(family.skeleton, together)
            if word:
                stems[stem, tuple(sorted(family.specs))][word] = family
        for (stem, numbers), by_word in stems.items():
            if len(by_word) == len(together):
                parts = [by_word[w] for w in together]
                specs = {n: _sum([p.specs[n] for p in parts]) for n in numbers}
                if None not in specs.values():
                    yield Family(
                        stem.replace("?", "_".join(together)),
                        {n: s for n, s in specs.items() if s is not None},
                        {n: tuple(p.keys[n][0] for p in parts) for n in numbers},
                        parts[0].rank,
                        (_join(parts, together),),
                        parts=len(parts),
                        confirm=f"{named} in one tensor, by shape; {_UNKNOWN[together]}",
                        of=tuple(p.skeleton for p in parts),
                    )


_UNKNOWN = {
    ("q", "k", "v"): "which of them is first, and whether they lie as blocks, by heads or in groups, "
    "no name says: set layout, order, heads and kv_heads",
    ("gate", "up"): "which of them is first, and whether their rows lie by turns, no name says: "
    "swap them, or use interleave or deinterleave",
}


def _stem(skeleton: str, together: Sequence[str]) -> tuple[str, str]:
    """The name with the one word of the set replaced by ``?``, and the word; none where there are more."""
    pieces = re.split(r"([._])", skeleton)
    found = [n for n, piece in enumerate(pieces) if words(piece)[:1] and words(piece)[0] in together]
    if len(found) != 1 or len(words(pieces[found[0]])) != 1:
        return "", ""
    word = words(pieces[found[0]])[0]
    pieces[found[0]] = "?"
    return "".join(pieces), word


def _sum(specs: Sequence[TensorSpec]) -> TensorSpec | None:
    """The spec of the rows of all of them; None where their rows differ."""
    if len({(s.dtype, s.shape[1:]) for s in specs}) > 1 or not specs[0].shape:
        return None
    return TensorSpec(specs[0].dtype, (sum(s.shape[0] for s in specs), *specs[0].shape[1:]))


def _join(parts: Sequence[Family], together: Sequence[str]) -> Step:
    rows = [p.ordered[0].shape[0] for p in parts]
    if together != ("q", "k", "v") or rows[1] != rows[2] or not rows[1] or rows[0] % rows[1]:
        return {"concat": {"dim": 0} if len(set(rows)) == 1 else {"dim": 0, "sizes": rows}}
    unit = gcd(*rows)
    heads: dict[str, object] = {"heads": rows[0] // unit, "kv_heads": rows[1] // unit}
    return {"fuse_qkv": {"layout": "blocks", "order": list(together), **heads}}


def _turned(family: Family) -> Iterator[Family]:
    """The family transposed, where that changes its shape."""
    if all(len(s.shape) == 2 and s.shape[0] != s.shape[1] for s in family.specs.values()):
        note = "the shapes are transposed"
        yield replace(
            family,
            specs={n: TensorSpec(s.dtype, s.shape[::-1]) for n, s in family.specs.items()},
            steps=(*family.steps, "transpose"),
            confirm=f"{family.confirm}; {note}" if family.confirm else note,
        )


def _stacked(family: Family, *, turned: bool) -> Iterator[Family]:
    """The family as the members of one tensor, along each of its numbers that counts from 0."""
    for slot in range(len(next(iter(family.specs)))):
        rows: dict[Numbers, dict[int, Numbers]] = defaultdict(dict)
        for numbers in family.specs:
            rest = (*numbers[:slot], *numbers[slot + 1 :])
            rows[rest][numbers[slot]] = numbers
        count = len(next(iter(rows.values())))
        complete = all(len(r) == count and max(r) == count - 1 for r in rows.values())
        alike = all(len({family.specs[n] for n in r.values()}) == 1 for r in rows.values())
        if count < 2 or not complete or not alike:
            continue
        yield replace(
            family,
            skeleton=_with(family.skeleton, slot, ""),
            specs={n: _raised(family.specs[r[0]], count) for n, r in rows.items()},
            keys={n: tuple(k for m in range(count) for k in family.keys[r[m]]) for n, r in rows.items()},
            steps=(*family.steps, {"stack": {"over": MEMBER}}),
            slot=slot,
            confirm=family.confirm if turned else _square(family),
        )


def _raised(spec: TensorSpec, count: int) -> TensorSpec:
    return TensorSpec(spec.dtype, (count, *spec.shape))


def _square(family: Family) -> str:
    """What is to be confirmed of a stack: a square matrix may lie transposed in it."""
    shapes = {s.shape for s in family.specs.values()}
    square = any(len(s) == 2 and s[0] == s[1] for s in shapes)
    note = "the matrices are square, so that they may lie transposed" if square else ""
    return "; ".join(t for t in (family.confirm, note) if t)
