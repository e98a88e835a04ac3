"""What each finding is worth: levels, expected counts, coverage, waivers; as values.

``policy_file`` reads them from YAML, ``judge`` applies them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date

from remap.audits.finding import Level
from remap.packs.language.template import parse_template
from remap.packs.matching.matcher import Matcher


@dataclass(frozen=True, slots=True)
class Count:
    """How many are expected: ``least`` to ``most``, both included; None is without end."""

    least: int
    most: int | None

    def __contains__(self, number: int) -> bool:
        return self.least <= number and (self.most is None or number <= self.most)

    def __str__(self) -> str:
        if self.least == self.most:
            return str(self.least)
        return f"{self.least}..{'' if self.most is None else self.most}"


class Pattern:
    """A template that a whole key must match: ``*`` is a segment, ``**`` one or more. Raises PackError."""

    __slots__ = ("_matcher", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self._matcher = Matcher(parse_template(text, {}, {}))

    def matches(self, key: str) -> bool:
        """Does the whole key match?"""
        return self._matcher.match(key) is not None


@dataclass(frozen=True)
class Waiver:
    """Findings that somebody looked at and lets pass.

    category  the one that it waives; None waives missing and unexpected keys, nothing else
    until     the last day on which it holds
    expect    how many findings it must match
    place     file and line
    """

    pattern: Pattern
    reason: str
    category: str | None = None
    until: date | None = None
    expect: Count | None = None
    place: str = ""

    def covers(self, category: str, key: str) -> bool:
        """Does it waive a finding of this category on this key?"""
        if self.category is not None:
            return self.category == category and self.pattern.matches(key)
        return category.startswith(("missing-", "unexpected-")) and self.pattern.matches(key)


@dataclass(frozen=True)
class Custom:
    """A category that a policy adds: keys that match are ``missing-<name>`` and ``unexpected-<name>``."""

    name: str
    patterns: tuple[Pattern, ...]


@dataclass(frozen=True)
class Policy:
    """What each finding is worth.

    levels    category -> level, where it departs from the category's own
    expect    category -> how many findings there must be
    ref       what it was asked for by: its name, or a path
    keys      least share of the target's keys that must match, 0 to 1
    elements  the same by elements
    """

    name: str = "strict"
    title: str = "every tensor of the model comes from the checkpoint, and none is left over"
    levels: Mapping[str, Level] = field(default_factory=dict)
    expect: Mapping[str, Count] = field(default_factory=dict)
    keys: float = 0.0
    elements: float = 0.0
    waivers: tuple[Waiver, ...] = ()
    categories: tuple[Custom, ...] = ()
    ref: str = "strict"


STRICT = Policy()
