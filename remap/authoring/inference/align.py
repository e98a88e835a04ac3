"""Pairs by name: families of keys that have the same numbers and shapes, the likest names first.

Two families fit if the numbers of one are those of the other, shifted by a constant, and all shapes are
equal. Among those that fit the likest names win, if they are like enough and no other pair is as like: a
guess that could as well be another is not made. What fits only put together or transposed, or because
nothing else is left, is proposed for the author to confirm.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

from remap.authoring.inference.families import Family, composed, families
from remap.authoring.inference.pairs import Fold, Pair, undone
from remap.authoring.inference.words import Likeness, words
from remap.types import Entry

ENOUGH = 0.35
"""Likeness from which on a pair is proposed."""
MARGIN = 0.02
"""How much likelier a pair must be than every other that needs one of its keys."""
PENALTY = 0.15
"""What a pair loses that needs ops: renames come first."""
LAST = "by elimination: nothing else is left with this shape"
SQUARE = "others are transposed; of a square matrix the shape does not say it"
TURNED = "where the two sides turn rotary embeddings in different ways, its rows are in another order"


@dataclass(frozen=True, eq=False)
class Match:
    """Two families that fit; at most one of them is composed."""

    ours: Family
    theirs: Family

    @property
    def needs(self) -> tuple[tuple[str, str], ...]:
        """The families of keys that it takes, by side."""
        return (*(("a", s) for s in self.ours.of), *(("b", s) for s in self.theirs.of))

    @property
    def steps(self) -> bool:
        """Does it need ops?"""
        return bool(self.ours.steps or self.theirs.steps)


def by_name(source: Iterable[Entry], target: Iterable[Entry], *, ops: bool) -> list[Pair]:
    """Pairs of keys by name and shape; with ``ops`` also of what is put together or transposed."""
    ours, theirs = families(source), families(target)
    more_ours = composed(ours) if ops else []
    more_theirs = [f for f in composed(theirs) if f.steps != ("transpose",)] if ops else []
    likeness = Likeness(f.skeleton for f in (*ours, *theirs, *more_ours, *more_theirs))
    left = [*_fitting(ours, [*theirs, *more_theirs]), *_fitting(more_ours, theirs)]
    chosen: list[tuple[Match, str]] = []
    while left:
        scores = {m: _score(m, likeness) for m in left}
        new = [(m, "") for m in _best(scores, likeness)] or [(m, LAST) for m in _forced(scores)]
        if not new:
            break
        chosen += new
        for match, _ in new:
            likeness.learn(match.ours.skeleton, match.theirs.skeleton)
        taken = {need for match, _ in new for need in match.needs}
        left = [m for m in left if taken.isdisjoint(m.needs)]
    turned = any("transpose" in (*m.ours.steps, *m.theirs.steps) for m, _ in chosen)
    return [pair for m, why in chosen for pair in _paired(m, _doubt(m, turned=turned) or why)]


def _fitting(ours: Iterable[Family], theirs: Iterable[Family]) -> Iterator[Match]:
    """The families with the same shapes at the same numbers."""
    by_shape: dict[object, list[Family]] = defaultdict(list)
    for b in theirs:
        by_shape[b.ordered, b.varying].append(b)
    for a in ours:
        for b in by_shape.get((a.ordered, a.varying), ()):
            if {words(a.skeleton)[-1], words(b.skeleton)[-1]} != {"weight", "bias"}:
                yield Match(a, b)


def _rivals(scores: Mapping[Match, float]) -> dict[tuple[str, str], list[float]]:
    """The scores of the matches that need a family of keys."""
    rivals: dict[tuple[str, str], list[float]] = defaultdict(list)
    for match, score in scores.items():
        for need in match.needs:
            rivals[need].append(score)
    return rivals


def _best(scores: Mapping[Match, float], likeness: Likeness) -> list[Match]:
    """Those that are like enough, and clearly the best for every family that they need."""
    rivals = _rivals(scores)
    found: list[Match] = []
    for m, score in scores.items():
        leads = all(sum(s > score - MARGIN for s in rivals[need]) == 1 for need in m.needs)
        related = likeness.related(m.ours.skeleton, m.theirs.skeleton)
        if score + _penalty(m) >= ENOUGH and leads and related:
            found.append(m)
    return found


def _forced(scores: Mapping[Match, float]) -> list[Match]:
    """The likest one without which a family would be left: a rename that has no rival, or what is put
    together where the whole has no other parts."""
    rivals = _rivals(scores)
    for m in sorted(scores, key=scores.__getitem__, reverse=True):
        alone = [len(rivals[need]) == 1 for need in m.needs]
        same_last = words(m.ours.skeleton)[-1] == words(m.theirs.skeleton)[-1]
        whole = m.needs[0] if m.theirs.steps else m.needs[-1]
        likely = len(rivals[whole]) == 1 and scores[m] + _penalty(m) >= ENOUGH
        if likely if m.steps else (all(alone) and same_last):
            return [m]
    return []


def _score(match: Match, likeness: Likeness) -> float:
    a, b = match.ours.skeleton, match.theirs.skeleton
    near = 1 - abs(match.ours.rank - match.theirs.rank)
    counted = 2 * MARGIN if match.steps and _counts(a) == _counts(b) else 0
    return 0.9 * likeness(a, b) + 0.1 * near + counted - _penalty(match)


def _penalty(match: Match) -> float:
    return PENALTY if match.steps and match.ours.skeleton != match.theirs.skeleton else 0.0


def _counts(skeleton: str) -> list[str]:
    """What is counted: the segments before the numbers."""
    segments = skeleton.split(".")
    return [a for a, b in pairwise(segments) if b == "#"]


def _doubt(match: Match, *, turned: bool) -> str:
    """What names and shapes leave open."""
    a, b = match.ours, match.theirs
    if match.steps:
        return a.confirm or b.confirm
    if turned and all(len(s.shape) == 2 and s.shape[0] == s.shape[1] for s in a.specs.values()):
        return SQUARE
    renamed = a.skeleton.split(".")[-2:] != b.skeleton.split(".")[-2:]
    return TURNED if renamed and {"q", "k"} & set(words(a.skeleton)) else ""


def _paired(match: Match, confirm: str) -> Iterator[Pair]:
    a, b = match.ours, match.theirs
    steps = a.steps or undone(b.steps)
    fold = None
    if a.slot is not None:
        fold = Fold("sources", a.slot, a.parts)
    elif b.slot is not None:
        fold = Fold("targets", b.slot, b.parts)
    for n, m in zip(sorted(a.specs), sorted(b.specs), strict=True):
        first, *more = b.keys[m]
        yield Pair(a.keys[n], first, steps, "name", tuple(more), fold, confirm)
