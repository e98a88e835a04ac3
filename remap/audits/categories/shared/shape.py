"""A tensor that both sides have under one name, in different shapes.

Why: torch refuses it even with strict=False; libraries that skip it leave the model's own values, or memory
that was never written. No waiver of missing or unexpected keys covers it.

Remedy: the report says what it looks like (transposed, padded vocabulary, one part of several, another
number of experts, flattened). Convert it with a pack that has the op, or build the model with the sizes of
the checkpoint.

Example:

    source: {up.weight: "f32[4,8]", wte.weight: "f32[50257,4]", q.weight: "f32[2,4]"}
    target: {up.weight: "f32[8,4]", wte.weight: "f32[50304,4]", q.weight: "f32[4,4]"}
    finds: {up.weight: shape-mismatch, wte.weight: shape-mismatch, q.weight: shape-mismatch}
"""

from __future__ import annotations

from collections.abc import Iterable

from remap.audits.category import Category
from remap.audits.clues.diagnosis import diagnose
from remap.audits.comparison import Comparison
from remap.audits.finding import Finding


def find(self: Category, table: Comparison) -> Iterable[Finding]:
    """Shared keys of another shape, each with its diagnosis."""
    if table.unshaped:
        return
    for key, wanted in table.shared.items():
        given = table.offered[key]
        if given.shape != wanted.shape:
            yield self.shared(table, key, diagnose(key, given.shape, wanted.shape))


CATEGORY = Category("RM301", "shape-mismatch", "fail", find)
