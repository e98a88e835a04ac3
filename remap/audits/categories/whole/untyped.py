"""Element types were not compared: the target is a layout, and a layout knows none.

Why: a checkpoint in another type than the model's is cast while it is loaded, silently, and rounded where the
model's type is narrower.

Remedy: say which type the model has: --target-param dtype=bfloat16.

Example:

    source: {a.weight: "bf16[4]"}
    target: {a.weight: "bf16[4]"}
    target_untyped: true
    finds: {"": unverified-dtype, a.weight: matched}
"""

from __future__ import annotations

from collections.abc import Iterable

from remap.audits.category import Category
from remap.audits.comparison import Comparison
from remap.audits.finding import Finding


def find(self: Category, table: Comparison) -> Iterable[Finding]:
    """Said once."""
    if table.target.untyped:
        yield Finding(self.code, self.name, "", f"{table.target.name} says nothing of element types")


CATEGORY = Category("RM411", "unverified-dtype", "allow", find, claims=False)
