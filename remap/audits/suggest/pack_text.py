"""Old names -> new names, as the text of a pack: one rule a skeleton, numbers captured."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence

from remap.audits.names.masks import masked
from remap.audits.suggest.skeletons import Spans, group, is_plain, number_spans
from remap.packs.language.template import LONGEST
from remap.packs.matching.keyset import numbers

SINGLE = 100
"""Keys that may have a rule each."""
_LETTERS = "ijklmnopq"


def prefix_text(old: str, new: str, what: str) -> str:
    """A pack that puts ``new`` in the place of ``old`` before every key."""
    return _pack(what, [(f"{old}{{rest:path}}", f"{new}{{rest}}", False)], keep=False)


def pack_text(names: Mapping[str, str], offered: Collection[str], what: str) -> str:
    """A pack that gives ``names`` and keeps every other key of ``offered``.

    Where keys of two kinds get names of one, which key had which could not be told backwards: key by key it
    can, and where that would be too many rules, they go forwards only.
    """
    changed = {k: n for k, n in names.items() if k != n}
    made = _rules(changed)
    makers: dict[str, set[str]] = {}
    for old, new in made.values():
        makers.setdefault(new, set()).add(old)
    for pieces in group(k for k, n in names.items() if k == n):
        kept = _holes(pieces) if len(pieces) <= len(_LETTERS) else ""
        if kept in makers:
            makers[kept].add(kept)
    mixed = [k for k, (_, new) in made.items() if len(makers[new]) > 1]
    single = frozenset(mixed) if len(mixed) <= SINGLE else frozenset()
    rules: dict[tuple[str, str, bool], None] = {}
    for key, (old, new) in made.items():
        forward = len(makers[new]) > 1 and key not in single
        rules[(key, names[key], False) if key in single else (old, new, forward)] = None
    return _pack(what, rules, keep=any(names.get(k, k) == k for k in offered))


def _pack(what: str, rules: Iterable[tuple[str, str, bool]], *, keep: bool) -> str:
    lines = [
        "remap: 1",
        "pack: local/fix",
        "version: 1.0.0",
        f"title: {json.dumps(what)}",
        "stages:",
        "  - rules:",
    ]
    for n, (old, new, forward) in enumerate(rules):
        lines += [f"      - id: r{n}", f"        from: {json.dumps(old)}", f"        to: {json.dumps(new)}"]
        lines += ["        only: forward"] * forward
    if keep:
        lines += ["      - id: others", '        keep: "**"']
    return "\n".join(lines) + "\n"


def _rules(names: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Key -> old and new template. They are made once for all pairs of names that differ in digits only and
    have the same numbers in the same order."""
    pairs: dict[tuple[str, str], list[str]] = {}
    masks = zip(masked(list(names)), masked(list(names.values())), strict=True)
    for key, mask in zip(names, masks, strict=True):
        pairs.setdefault(mask, []).append(key)
    made: dict[str, tuple[str, str]] = {}
    for keys in pairs.values():
        first = keys[0], names[keys[0]]
        rule, here, there = _rule(*first), *map(number_spans, first)
        shared = rule != first and all(_agree(k, here, names[k], there) for k in keys)
        made |= dict.fromkeys(keys, rule) if shared else {k: _rule(k, names[k]) for k in keys}
    return made


def _agree(old: str, here: Spans, new: str, there: Spans) -> bool:
    return is_plain(old, here) and [old[a:b] for a, b in here] == [new[a:b] for a, b in there]


def _rule(old: str, new: str) -> tuple[str, str]:
    """Old and new with their numbers as captures, where both have the same ones in the same order."""
    ours, digits = numbers(old)
    theirs, others = numbers(new)
    if digits != others or len(digits) > len(_LETTERS):
        return old, new
    both = _holes(ours), _holes(theirs)
    return both if max(map(len, both)) < LONGEST else (old, new)


def _holes(pieces: Sequence[str]) -> str:
    return pieces[0] + "".join(f"{{{_LETTERS[n]}:int}}{piece}" for n, piece in enumerate(pieces[1:]))
