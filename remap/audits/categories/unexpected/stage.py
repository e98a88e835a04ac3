"""A layer of the checkpoint of which the model has nothing, at an end of those that it has.

Why: the model is one pipeline stage of several and takes its own layers; or it is smaller than the
checkpoint.

Remedy: none for a stage. If the model was to have these layers, its config has the wrong number of them.

Example:

    source: {l.0.w: "f32[4]", l.1.w: "f32[4]", l.2.w: "f32[4]"}
    target: {l.0.w: "f32[4]", l.1.w: "f32[4]"}
    finds: {l.2.w: unexpected-stage}
"""

from __future__ import annotations

from collections.abc import Iterable

from remap.audits.category import Category
from remap.audits.clues.stages import whole_layers
from remap.audits.comparison import Comparison
from remap.audits.finding import Finding


def find(self: Category, table: Comparison) -> Iterable[Finding]:
    """Layers with no key at all on the other side."""
    for key, detail in whole_layers(table.unexpected, table.offered, table.excess, "the target"):
        yield self.unexpected(table, key, detail)


CATEGORY = Category("RM208", "unexpected-stage", "fail", find)
