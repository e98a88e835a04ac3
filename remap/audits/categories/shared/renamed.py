"""A tensor that the packs bring to the model's name, in the right shape.

Why: it is loaded. The report says which rule did it.

Remedy: none needed.

Example:

    source: {old.a.weight: "f32[4]"}
    target: {new.a.weight: "f32[4]"}
    rules: {id: moved, from: "old.{rest:path}", to: "new.{rest}"}
    finds: {new.a.weight: renamed}
"""

from __future__ import annotations

from collections.abc import Iterable

from remap.audits.category import Category
from remap.audits.comparison import Comparison
from remap.audits.finding import Finding


def find(self: Category, table: Comparison) -> Iterable[Finding]:
    """Outputs of the plan that are no plain copies."""
    if not table.outputs:
        return
    same = table.values.same if table.values else frozenset()
    for key in table.shared:
        output = table.outputs[key]
        if output.op not in ("copy", "keep"):
            detail = f"{output.op} by {output.rule}" if output.rule else output.op
            yield self.shared(table, key, f"{detail}; the same values" if key in same else detail)


CATEGORY = Category("RM002", "renamed", "allow", find)
