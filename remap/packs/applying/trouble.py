"""What doesn't fit between a pack and these keys, collected where an audit wants to know all of it at once.

A conversion stops at the first kind. A tolerant run goes on: a key that no rule owns stays as it is, of two
sources of one target the first has it, and what a rule can't build is left out. A pack that owns none of the
keys is the wrong one, and an error for both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Literal

from remap.errors import PlanError
from remap.packs.language.pack import Rule
from remap.packs.language.template import parse_template

PASSED = Rule("", 0, "keep", (parse_template("**", {}, {}),), optional=True)
"""Owns what no rule owns, so that it can go on under its name."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """One thing that a conversion would refuse.

    kind    ``unowned``: no rule owns the key; ``collision``: several sources of one target; ``unfit``: a rule
            that does not fire as it should, or can't build its tensor
    key     the key that no rule owns, or the target; empty for a rule
    detail  in words, with pack, rule and line
    """

    kind: Literal["unowned", "collision", "unfit"]
    key: str
    detail: str


@dataclass
class Troubles:
    """Those of a run. ``tolerant``: they are collected; else whoever finds one raises it."""

    tolerant: bool = False
    found: dict[tuple[str, str, str], Trouble] = field(default_factory=dict)

    def add(self, kind: Literal["unowned", "collision", "unfit"], key: str, detail: str) -> None:
        """Collect one, once: a later stage has nothing new to say of a key that nobody owns."""
        about = "" if kind == "unowned" else detail
        self.found.setdefault((kind, key, about), Trouble(kind, key, detail))

    def unfit(self, problems: Iterable[str]) -> None:
        """Collect problems of rules."""
        for problem in problems:
            self.add("unfit", "", problem)

    def attempt(self, check: Callable[[], None]) -> None:
        """Run a check; its PlanError is collected where that is wanted."""
        try:
            check()
        except PlanError as e:
            if not self.tolerant:
                raise
            self.unfit(f"{e.what}: {p}" for p in e.problems or (str(e.where),))
