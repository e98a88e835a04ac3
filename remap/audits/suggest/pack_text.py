"""Old names -> new names, as the text of a pack: one rule a skeleton, numbers captured."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping

from remap.packs.keyset import numbers
from remap.packs.template import LONGEST

_LETTERS = "ijklmnopq"


def prefix_text(old: str, new: str, what: str) -> str:
    """A pack that puts ``new`` in the place of ``old`` before every key."""
    return _pack(what, [(f"{old}{{rest:path}}", f"{new}{{rest}}")], keep=False)


def pack_text(names: Mapping[str, str], offered: Collection[str], what: str) -> str:
    """A pack that gives ``names`` and keeps every other key of ``offered``."""
    makers: dict[str, set[str]] = {}
    for key, name in names.items():
        old, new = _rule(key, name)
        makers.setdefault(new, set()).add(old)
    rules: dict[tuple[str, str], None] = {}
    for key, name in names.items():
        old, new = _rule(key, name)
        rules[(old, new) if len(makers[new]) == 1 else (key, name)] = None
    changed = [(old, new) for old, new in rules if old != new]
    return _pack(what, changed, keep=any(names.get(k, k) == k for k in offered))


def _pack(what: str, rules: Iterable[tuple[str, str]], *, keep: bool) -> str:
    lines = [
        "remap: 1",
        "pack: local/fix",
        "version: 1.0.0",
        f"title: {json.dumps(what)}",
        "stages:",
        "  - rules:",
    ]
    for n, (old, new) in enumerate(rules):
        lines += [f"      - id: r{n}", f"        from: {json.dumps(old)}", f"        to: {json.dumps(new)}"]
    if keep:
        lines += ["      - id: others", '        keep: "**"']
    return "\n".join(lines) + "\n"


def _rule(old: str, new: str) -> tuple[str, str]:
    """Old and new with their numbers as captures, where both have the same ones in the same order."""
    ours, digits = numbers(old)
    theirs, others = numbers(new)
    if digits != others or len(digits) > len(_LETTERS):
        return old, new
    both = _holes(ours), _holes(theirs)
    return both if max(map(len, both)) < LONGEST else (old, new)


def _holes(pieces: list[str]) -> str:
    return pieces[0] + "".join(f"{{{_LETTERS[n]}:int}}{piece}" for n, piece in enumerate(pieces[1:]))
