"""A layer of the model that is missing whole, at an end of those that the checkpoint has.

Why: the checkpoint is one pipeline stage of several, was cut, or is a smaller model.

Remedy: point at the folder of all stages, not at one of its files; if the model is meant to have more
layers than the checkpoint, waive them with a reason.

Example:

    source: {l.0.w: "f32[4]", l.1.w: "f32[4]"}
    target: {l.0.w: "f32[4]", l.1.w: "f32[4]", l.2.w: "f32[4]", l.3.w: "f32[4]"}
    finds: {l.2.w: missing-stage, l.3.w: missing-stage}
"""

from __future__ import annotations

from collections.abc import Iterable

from remap.audits.category import Category
from remap.audits.clues.stages import whole_layers
from remap.audits.comparison import Comparison
from remap.audits.finding import Finding


def find(self: Category, table: Comparison) -> Iterable[Finding]:
    """Layers with no key at all on the other side."""
    for key, detail in whole_layers(table.missing, table.target.specs, table.absent, "the source"):
        yield self.missing(table, key, detail)


CATEGORY = Category("RM108", "missing-stage", "fail", find)
