"""A tensor that both sides have under one name, in one shape and type.

Why: it is loaded. Names and shapes say nothing of the values; see unverified-layout.

Remedy: none needed.

Example:

    source: {a.weight: "f32[4]"}
    target: {a.weight: "f32[4]"}
    finds: {a.weight: matched}
"""

from __future__ import annotations

from collections.abc import Iterable

from remap.audits.category import Category
from remap.audits.comparison import Comparison
from remap.audits.finding import Finding


def find(self: Category, table: Comparison) -> Iterable[Finding]:
    """All that is left of the shared keys."""
    same = table.values.same if table.values else frozenset()
    if table.plan is None and not same:  # tens of thousands of them: the short way
        given = table.offered
        for key, wanted in table.shared.items():
            yield Finding(self.code, self.name, key, "", (key,), given[key], wanted)
        return
    for key in table.shared:
        yield self.shared(table, key, "the same values" if key in same else "")


CATEGORY = Category("RM001", "matched", "allow", find)
