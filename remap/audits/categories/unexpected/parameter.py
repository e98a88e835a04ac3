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
from remap.audits.names.ties import is_head, other_head


def find(self: Category, table: Comparison) -> Iterable[Finding]:
    """All that is left. An output head under another name is told."""
    heads = frozenset(table.named("unexpected", is_head))
    for key in table.unexpected:
        head = other_head(key, table.absent) if key in heads else ""
        detail = f"the target's output head is {head}" if head and _fits(table, key, head) else ""
        yield self.unexpected(table, key, detail)


def _fits(table: Comparison, key: str, head: str) -> bool:
    return table.unshaped or table.offered[key].shape == table.target.specs[head].shape


CATEGORY = Category("RM201", "unexpected-parameter", "fail", find)
