"""A tensor of the checkpoint that no rule of the packs owns.

Why: a pack says of every key what becomes of it. One that it does not know was misnamed, comes from another
version of the model, or belongs to another one; a conversion refuses.

Remedy: add a rule: rename, keep, or drop with a reason; or use a pack for this layout.

Example:

    source: {old.a.weight: "f32[4]", ema.a.weight: "f32[4]"}
    target: {new.a.weight: "f32[4]"}
    rules: {id: moved, from: "old.{rest:path}", to: "new.{rest}"}
    finds: {ema.a.weight: no-rule, new.a.weight: renamed}
"""

from __future__ import annotations

from collections.abc import Iterable

from remap.audits.category import Category
from remap.audits.comparison import Comparison
from remap.audits.finding import Finding


def find(self: Category, table: Comparison) -> Iterable[Finding]:
    """What the plan says. The key is as it was when it reached the pack."""
    for trouble in table.troubles("unowned"):
        key = trouble.key
        yield Finding(
            self.code,
            self.name,
            key,
            trouble.detail,
            table.sources(key),
            table.offered.get(key),
            table.target.specs.get(key),
        )


CATEGORY = Category("RM408", "no-rule", "fail", find, claims=False)
