"""Pairs by name: families of keys that have the same numbers and shapes, the likest names first.

A family is the keys of one skeleton. Two fit if the numbers of one are those of the other, shifted by a
constant, and all shapes are equal. Among those that fit the likest names win, if they are like enough and
no other pair is as like: a guess that could as well be another is not made.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import log

from remap.authoring.inference.pairs import Numbers, Pair, apart
from remap.types import Entry, TensorSpec

ENOUGH = 0.35
"""Likeness from which on a pair is proposed."""
MARGIN = 0.02
"""How much likelier a pair must be than every other of its two families."""
SPELLINGS = {
    "gamma": "weight",
    "beta": "bias",
    "wte": "embed",
    "wpe": "position",
    "tok": "embed",
    "embeddings": "embed",
    "ln": "norm",
    "layernorm": "norm",
    "layer": "layers",
    "attn": "attention",
    "query": "q",
    "key": "k",
    "value": "v",
    "wq": "q",
    "wk": "k",
    "wv": "v",
    "wo": "o",
    "out": "o",
    "output": "o",
    "w1": "gate",
    "w2": "down",
    "w3": "up",
    "ffn": "mlp",
    "forward": "mlp",
}
"""Words that projects have for the same thing; they only raise a likeness."""


@dataclass(frozen=True, eq=False)
class Family:
    """Keys of one skeleton, by their numbers; ``rank`` is where they stand in the file, from 0 to 1."""

    skeleton: str
    members: dict[Numbers, Entry]
    rank: float

    @property
    def shifted(self) -> tuple[Numbers, ...]:
        """The numbers, counted from the smallest of each."""
        return tuple(sorted(_less(n, self.smallest) for n in self.members))

    @property
    def smallest(self) -> Numbers:
        """The smallest number of each slot."""
        return tuple(map(min, zip(*self.members, strict=True)))

    @property
    def specs(self) -> tuple[TensorSpec, ...]:
        """Specs in the order of the numbers."""
        return tuple(self.members[n].spec for n in sorted(self.members))


def by_name(source: Iterable[Entry], target: Iterable[Entry]) -> list[Pair]:
    """Pairs of the keys that are left, by name and shape."""
    ours, theirs = families(source), families(target)
    likeness = Likeness([*ours, *theirs])
    fitting = {a: [b for b in theirs if _fit(a, b)] for a in ours}
    chosen: dict[Family, Family] = {}
    while True:
        new = _choose(fitting, chosen, likeness)
        if not new:
            return [pair for a, b in chosen.items() for pair in _paired(a, b)]
        for a, b in new.items():
            chosen[a] = b
            likeness.learn(a, b)


def _choose(
    fitting: Mapping[Family, list[Family]], chosen: Mapping[Family, Family], likeness: Likeness
) -> dict[Family, Family]:
    """The pairs of families that are each other's best, and clearly so."""
    taken = set(chosen.values())
    scores = {
        (a, b): likeness(a, b)
        for a, several in fitting.items()
        if a not in chosen
        for b in several
        if b not in taken
    }
    best_a: dict[Family, list[float]] = defaultdict(list)
    best_b: dict[Family, list[float]] = defaultdict(list)
    for (a, b), score in scores.items():
        best_a[a].append(score)
        best_b[b].append(score)
    return {
        a: b
        for (a, b), score in scores.items()
        if score >= ENOUGH
        and _leads(score, best_a[a])
        and _leads(score, best_b[b])
        and (likeness.related(a, b) or len(best_a[a]) == len(best_b[b]) == 1)
    }


def _leads(score: float, scores: list[float]) -> bool:
    """Is it the best, by more than MARGIN?"""
    return sum(s > score - MARGIN for s in scores) == 1


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
        found += _split(Family(skel, members, ranks[skel] / max(count, 1)))
    return found


def _split(family: Family) -> Iterator[Family]:
    """``mlp.0.weight`` and ``mlp.2.weight`` of different shapes are two names, not one with a number."""
    for slot in range(len(family.smallest)):
        values = sorted({n[slot] for n in family.members})
        if len(values) < 2:
            continue
        parts = {v: {n: e for n, e in family.members.items() if n[slot] == v} for v in values}
        specs = {v: {e.spec for e in part.values()} for v, part in parts.items()}
        if all(len(s) == 1 for s in specs.values()) and len({next(iter(s)) for s in specs.values()}) > 1:
            for value, part in parts.items():
                segments = family.skeleton.split(".")
                place = [i for i, s in enumerate(segments) if s == "#"][slot]
                segments[place] = f"#{value}"
                yield Family(".".join(segments), part, family.rank)
            return
    yield family


def _less(numbers: Numbers, by: Numbers) -> Numbers:
    return tuple(n - b for n, b in zip(numbers, by, strict=True))


def _varying(family: Family) -> tuple[Numbers, ...]:
    """The shifted numbers without the slots that never change."""
    columns = [c for c in zip(*family.shifted, strict=True) if len(set(c)) > 1]
    return tuple(zip(*columns, strict=True)) if columns else ((),) * len(family.members)


def _fit(one: Family, other: Family) -> bool:
    if len(one.members) != len(other.members) or one.specs != other.specs:
        return False
    return _varying(one) == _varying(other)


def _paired(one: Family, other: Family) -> Iterator[Pair]:
    for a, b in zip(sorted(one.members), sorted(other.members), strict=True):
        yield Pair((one.members[a].key,), other.members[b].key, None, "name")


class Likeness:
    """How like two names are, from 0 to 1: words that few families have count most.

    ``learned`` are prefixes that pairs so far were renamed by: a name that one of them turns into the
    other is as good as equal.
    """

    def __init__(self, families: Iterable[Family]) -> None:
        self.words = {f.skeleton: _words(f.skeleton) for f in families}
        counts = Counter(w for words in self.words.values() for w in set(words))
        total = len(self.words)
        self.weight = {w: log(1 + total / n) for w, n in counts.items()}
        self.learned: set[tuple[str, str]] = set()

    def __call__(self, one: Family, other: Family) -> float:
        from rapidfuzz import fuzz

        if any(_swapped(one.skeleton, a, b) == other.skeleton for a, b in self.learned):
            return 1.0
        a, b = self.words[one.skeleton], self.words[other.skeleton]
        common, union = Counter(a) & Counter(b), Counter(a) | Counter(b)
        names = self._sum(common) / (self._sum(union) or 1)
        letters = fuzz.ratio(one.skeleton, other.skeleton) / 100
        last = 1.0 if a[-1:] == b[-1:] else 0.0
        return 0.55 * names + 0.2 * letters + 0.15 * last + 0.1 * (1 - abs(one.rank - other.rank))

    def related(self, one: Family, other: Family) -> bool:
        """Have they a word in common, beside the last, which is ``weight`` everywhere?"""
        a, b = self.words[one.skeleton], self.words[other.skeleton]
        return bool(set(a[:-1]) & set(b[:-1]))

    def learn(self, one: Family, other: Family) -> None:
        """Remember what came before the common end of the two names."""
        a, b = one.skeleton.split("."), other.skeleton.split(".")
        same = 0
        while same < min(len(a), len(b)) and a[-1 - same] == b[-1 - same]:
            same += 1
        if same >= 2:
            self.learned.add((".".join(a[: len(a) - same]), ".".join(b[: len(b) - same])))

    def _sum(self, words: Counter[str]) -> float:
        return sum(self.weight[w] * n for w, n in words.items())


def _swapped(skeleton: str, a: str, b: str) -> str | None:
    """The name with the prefix ``a`` replaced by ``b``."""
    if a and not skeleton.startswith(f"{a}."):
        return None
    rest = skeleton[len(a) + 1 :] if a else skeleton
    return f"{b}.{rest}" if b else rest


def _words(skeleton: str) -> list[str]:
    words = skeleton.replace("_", ".").split(".")
    return [SPELLINGS.get(w.lower(), w.lower()) for w in words if w and w != "#"]
