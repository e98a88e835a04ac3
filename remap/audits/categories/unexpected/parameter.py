"""A tensor of the checkpoint that the model has no place for.

Why: strict=False leaves it out without a word. If it is a weight under another name, the model's own copy
stays random.

Remedy: rename it with a pack, or drop it with one, with a reason.

Example:

    source: {a.weight: "f32[4]", head.weight: "f32[2,4]"}
    target: {a.weight: "f32[4]"}
    finds: {head.weight: unexpected-parameter}
"""

from __future__ import annotations

from collections.abc import Iterable

from remap.audits.category import Category
from remap.audits.comparison import Comparison
from remap.audits.finding import Finding


def find(self: Category, table: Comparison) -> Iterable[Finding]:
    """All that is left."""
    return (self.unexpected(table, k) for k in table.unexpected)


CATEGORY = Category("RM201", "unexpected-parameter", "fail", find)
