"""The ``regex:`` escape hatch: full match on a whole key, named groups, a time limit.

Patterns run in the ``regex`` package, which can be stopped; Python's own ``re`` can't. Only a pack
that uses one imports it.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from math import prod
from typing import Any

from remap.errors import PackError, PlanError
from remap.packs.language.pack import Pattern

LONGEST = 500
"""Characters a pattern may have."""
MOST_REPEATS = 1000
"""What the counts of a pattern, ``{3}`` or ``{1,3}``, may multiply to: compiling writes out each."""
_REPEATS = re.compile(r"\{(?:([0-9]*),)?([0-9]+)\}|\{([0-9]+),\}")
SECONDS = 1.0
"""What one rule may spend on all keys of a plan."""


def read_pattern(text: str) -> Pattern:
    """Check a pattern. Raises PackError."""
    compiled = _compile(text)
    if compiled.groups != len(compiled.groupindex):
        raise PackError(f"{text!r}: a group without a name", remedy="write (?P<name>...) or (?:...)")
    return Pattern(text, frozenset(compiled.groupindex))


def _compile(text: str) -> Any:
    import regex

    if len(text) > LONGEST:
        raise PackError(f"a regex of {len(text)} characters; {LONGEST} are allowed")
    if prod(max(1, *(int(n or 0) for n in several)) for several in _REPEATS.findall(text)) > MOST_REPEATS:
        raise PackError(
            f"{text!r} repeats its parts more than {MOST_REPEATS} times", remedy="use a template, or * and +"
        )
    try:
        return regex.compile(text)
    except (regex.error, OverflowError, RecursionError) as e:
        raise PackError(f"{text!r} is no regex: {e}") from None


_PIECES = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]])*\]|\((?:\?P?<\w+>|\?:)?|\)|[*+]|\{\d*,\}|.", re.DOTALL)
"""What a pattern is made of, as far as repetitions go: escapes, sets, groups, quantifiers, characters."""


def unbounded(pattern: Pattern) -> str | None:
    """A part of the pattern without a bound: ``.*``, which takes whole segments, or a repeated repetition."""
    groups: list[bool] = [False]
    closed = False
    before = ""
    for piece in _PIECES.findall(pattern.text):
        repeats = piece in ("*", "+") or piece.endswith(",}")
        if repeats and (before == "." or closed):
            return f"{before}{piece}" if before == "." else f"a repeated group, ){piece}"
        if piece.startswith("("):
            groups.append(False)
        closed = piece == ")" and len(groups) > 1 and groups.pop()
        groups[-1] = groups[-1] or repeats or closed
        before = piece
    return None


class PatternMatcher:
    """Matches one pattern against keys, and stops when the rule's time is up."""

    def __init__(self, pattern: Pattern, place: str) -> None:
        self.pattern = pattern
        self.place = place
        self._compiled = _compile(pattern.text)
        self._left = SECONDS

    def match(self, key: str) -> Mapping[str, str] | None:
        """The named groups, or None. Raises PlanError when the time is up."""
        began = time.monotonic()
        try:
            found = self._compiled.fullmatch(key, timeout=max(self._left, 0.001))
        except TimeoutError:
            raise PlanError(
                f"the regex took more than {SECONDS:g} s, at the key {key[:200]!r}",
                where=self.place,
                remedy="use a template, or a pattern without nested repetition",
            ) from None
        self._left -= time.monotonic() - began
        if found is None:
            return None
        return {name: text or "" for name, text in found.groupdict().items()}
