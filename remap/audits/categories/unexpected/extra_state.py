"""Extra state of a module (get_extra_state) in the checkpoint that the model has no place for.

Why: it was saved by a library that keeps more than tensors (fp8 scales of TransformerEngine); this model
has no use for it.

Remedy: none, if the model is to run without that library.

Example:

    source: {l.weight: "f32[4]", l._extra_state: "u8[16]"}
    target: {l.weight: "f32[4]"}
    finds: {l._extra_state: unexpected-extra-state}
"""

from __future__ import annotations

from collections.abc import Iterable

from remap.audits.category import Category
from remap.audits.comparison import Comparison
from remap.audits.finding import Finding
from remap.audits.names.parts import is_extra_state


def find(self: Category, table: Comparison) -> Iterable[Finding]:
    """By name."""
    return (self.unexpected(table, k) for k in table.named("unexpected", is_extra_state))


CATEGORY = Category("RM206", "unexpected-extra-state", "warn", find)
