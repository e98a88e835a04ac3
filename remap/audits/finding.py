"""One thing that an audit has to say, and what it is worth."""

from __future__ import annotations

from typing import Literal

import msgspec

from remap.types import TensorSpec

Level = Literal["allow", "warn", "fail"]
LEVELS: tuple[Level, ...] = ("allow", "warn", "fail")


class Finding(msgspec.Struct, frozen=True):
    """One thing that an audit has to say.

    code      stable: ``RM101``
    category  its name: ``missing-parameter``
    key       the target's key; the source's (as the packs name it) where the target has none; empty
              where it is about the whole
    detail    what was found here, in words
    source    the source's own keys that would be loaded there
    found     what the source gives
    expected  what the target has
    rule      the rules that made the name
    """

    code: str
    category: str
    key: str
    detail: str = ""
    source: tuple[str, ...] = ()
    found: TensorSpec | None = None
    expected: TensorSpec | None = None
    rule: str = ""

    @property
    def fingerprint(self) -> str:
        """What tells it from other findings, in a baseline: where both sides have the key, the same key in
        another shape is news, and so is another detail of what is about a pair, values, or the whole."""
        specs = f" {self.found} {self.expected}" if self.found and self.expected else ""
        detail = (
            f" {self.detail}" if self.category in ("adapter-pair", "values-differ") or not self.key else ""
        )
        return f"{self.code} {self.key}{specs}{detail}"


class Judged(msgspec.Struct, frozen=True):
    """A finding with what the policy makes of it, and why."""

    finding: Finding
    level: Level
    because: str
