"""Extra state of a module (get_extra_state) that the checkpoint does not give.

Why: it is no tensor of the model but what a module keeps besides, such as the scales of fp8 training.
Without it the module starts from its defaults.

Remedy: none, if the module is not used in that way; else save the checkpoint with it.

Example:

    source: {l.weight: "f32[4]"}
    target: {l.weight: "f32[4]", l._extra_state: "u8[0]"}
    finds: {l._extra_state: missing-extra-state}
"""

from __future__ import annotations

from collections.abc import Iterable

from remap.audits.category import Category
from remap.audits.comparison import Comparison
from remap.audits.finding import Finding
from remap.audits.names.parts import is_extra_state


def find(self: Category, table: Comparison) -> Iterable[Finding]:
    """By name."""
    return (self.missing(table, k) for k in table.named("missing", is_extra_state))


CATEGORY = Category("RM106", "missing-extra-state", "warn", find)
