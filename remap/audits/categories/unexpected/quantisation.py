"""Scales, zero points or packed weights in the checkpoint that the model has no place for.

Why: the checkpoint is quantised and the model is not. Without its scales a weight is only integers; loaded
under its old name it would be nonsense of the right shape.

Remedy: build the model with the quantisation that the checkpoint's config.json names, or dequantise it first.

Example:

    source: {l.qweight: "i32[1,4]", l.scales: "f16[1,4]", n.weight: "f16[4]"}
    target: {l.weight: "f16[4,4]", n.weight: "f16[4]"}
    finds: {l.qweight: unexpected-quantisation, l.scales: unexpected-quantisation}
"""

from __future__ import annotations

from collections.abc import Iterable

from remap.audits.category import Category
from remap.audits.comparison import Comparison
from remap.audits.finding import Finding
from remap.audits.names.parts import is_quantisation


def find(self: Category, table: Comparison) -> Iterable[Finding]:
    """By name."""
    return (self.unexpected(table, k) for k in table.named("unexpected", is_quantisation))


CATEGORY = Category("RM207", "unexpected-quantisation", "fail", find)
