"""A tensor that both sides have under one name and in one shape, with other values (only with --values).

Why: layers were swapped, a matrix was transposed, a tensor was trained further or comes from another model.
Names and shapes can't tell.

Remedy: the report says where the values are found on the other side, if they are there.

Example:

    source: {l.0.w: "f32[4,4]", l.1.w: "f32[4,4]"}
    target: {l.0.w: "f32[4,4]", l.1.w: "f32[4,4]"}
    differ: {l.0.w: the values of the target's l.1.w}
    finds: {l.0.w: values-differ, l.1.w: matched}
"""

from __future__ import annotations

from collections.abc import Iterable

from remap.audits.category import Category
from remap.audits.comparison import Comparison
from remap.audits.finding import Finding


def find(self: Category, table: Comparison) -> Iterable[Finding]:
    """Shared keys whose digests differ."""
    if table.values is None:
        return
    for key, detail in table.values.differ.items():
        if key in table.shared:
            yield self.shared(table, key, detail)


CATEGORY = Category("RM304", "values-differ", "fail", find)
