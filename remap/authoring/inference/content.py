"""Pairs by content: equal digests prove a rename; a tensor may also be what ``changed``, ``recognised`` and
``fused`` know: cast, turned for rotary embeddings, joined, cut, transposed, stacked.

Every tensor is read once, and once more for each transformation that its shape allows. What is constant
(all zeros, all ones) proves nothing and is left to the names.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from remap.authoring.inference.changed import changed
from remap.authoring.inference.fused import fused
from remap.authoring.inference.pairs import Fold, Pair, apart, undone
from remap.authoring.inference.recognised import Parts, recognised
from remap.comparing.digests import digests
from remap.expr import Take
from remap.types import Catalog, Entry


def by_content(source: Catalog, target: Catalog) -> list[Pair]:
    """Every target that is some source's bytes, or made of them in a way that is recognised."""
    ours = {k: e for k, e in source.entries.items() if k not in source.aliases}
    theirs = dict(target.entries)
    here = digests({k: Take(e) for k, e in ours.items()})
    there = digests({k: Take(e) for k, e in theirs.items()})
    found = list(_renamed(source, target, _keys(here), _keys(there)))
    _forget(found, ours, theirs)
    found += changed(ours.values(), theirs.values(), here)
    _forget(found, ours, theirs)
    found += _joined(theirs.values(), Parts(ours.values(), here))
    _forget(found, ours, theirs)
    found += _cut(ours.values(), Parts(theirs.values(), there))
    _forget(found, ours, theirs)
    return [*found, *fused(ours.values(), theirs.values())]


def _keys(digests: Mapping[str, str]) -> dict[str, list[str]]:
    """Digest -> keys."""
    keys: dict[str, list[str]] = defaultdict(list)
    for key, found in digests.items():
        keys[found].append(key)
    return dict(keys)


def _forget(found: Iterable[Pair], ours: dict[str, Entry], theirs: dict[str, Entry]) -> None:
    """Take out what is explained: a key has one owner."""
    for pair in found:
        for key in pair.sources:
            ours.pop(key, None)
        for key in pair.targets:
            theirs.pop(key, None)


def _renamed(
    source: Catalog, target: Catalog, ours: Mapping[str, list[str]], theirs: Mapping[str, list[str]]
) -> Iterator[Pair]:
    for found, targets in theirs.items():
        sources = [
            k for k in ours.get(found, ()) if source.entries[k].spec == target.entries[targets[0]].spec
        ]
        if len(sources) == 1 and len(targets) == 1:
            yield Pair((sources[0],), targets[0], (), "content")
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
            yield Pair((same[0],), key, (), "content")


def _joined(wholes: Iterable[Entry], parts: Parts) -> Iterator[Pair]:
    """Targets that are made of sources."""
    for whole in wholes:
        found = recognised(whole, parts)
        if found is not None:
            fold = None if found.slot is None else Fold("sources", found.slot, found.each)
            yield Pair(found.parts, whole.key, found.steps, "content", fold=fold)


def _cut(wholes: Iterable[Entry], parts: Parts) -> Iterator[Pair]:
    """Sources that targets are made of."""
    for whole in wholes:
        found = recognised(whole, parts)
        if found is not None:
            fold = None if found.slot is None else Fold("targets", found.slot, found.each)
            first, *more = found.parts
            yield Pair((whole.key,), first, undone(found.steps), "content", tuple(more), fold)
