"""A category of findings: one file, one code, and a docstring that says what, why, what to do, by an example.

The docstring of a category's module is its documentation: docs/audit.md and the rules in SARIF are made of
it, and a test runs its example. Its form:

    What it is, in one line.

    Why: what happens if one goes on.

    Remedy: what to do.

    Example:

        source: {a.weight: "f32[4]"}
        target: {a.weight: "f32[4]", b.weight: "f32[4]"}
        finds: {b.weight: missing-parameter}
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from remap.audits.comparison import Comparison
from remap.audits.finding import Finding, Level


@dataclass(frozen=True)
class About:
    """A category's docstring, in its parts."""

    what: str
    why: str
    remedy: str
    example: str


@dataclass(frozen=True)
class Category:
    """One kind of finding.

    code    stable, never used for something else
    name    what policies call it
    level   what the strict policy makes of it
    find    looks at the comparison; yields a finding for each key that it explains
    claims  a key that it explains is explained; False for remarks
    doc     the docstring of its module
    """

    code: str
    name: str
    level: Level
    find: Callable[[Category, Comparison], Iterable[Finding]]
    claims: bool = True
    doc: str = ""

    @property
    def about(self) -> About:
        """The docstring in its parts. Raises ValueError where one is absent."""
        text = inspect.cleandoc(self.doc)
        parts: dict[str, str] = {}
        for mark in ("Example:", "Remedy:", "Why:"):
            text, found, part = text.partition(f"\n\n{mark}")
            if not found:
                raise ValueError(f"{self.name}: the docstring has no {mark}")
            parts[mark] = part.strip("\n")
        return About(
            " ".join(text.split()),
            " ".join(parts["Why:"].split()),
            " ".join(parts["Remedy:"].split()),
            inspect.cleandoc("\n" + parts["Example:"]),
        )

    def missing(self, table: Comparison, key: str, detail: str = "") -> Finding:
        """A finding about a key that only the target has."""
        return Finding(self.code, self.name, key, detail, expected=table.target.specs[key])

    def unexpected(self, table: Comparison, key: str, detail: str = "") -> Finding:
        """A finding about a key that only the source has."""
        return Finding(
            self.code, self.name, key, detail, table.sources(key), table.offered[key], rule=table.rule(key)
        )

    def shared(self, table: Comparison, key: str, detail: str = "") -> Finding:
        """A finding about a key of both."""
        return Finding(
            self.code,
            self.name,
            key,
            detail,
            table.sources(key),
            table.offered[key],
            table.target.specs[key],
            table.rule(key),
        )


def nothing(_: Category, __: Comparison) -> Iterable[Finding]:
    """For categories whose findings come from the policy."""
    return ()
