"""Scales, zero points or packed weights that the model wants and the checkpoint does not give.

Why: the model is quantised and the checkpoint is not, or in another way. The weights under the same names
would be read as something that they are not.

Remedy: quantise the checkpoint with the library that the model is from, or load it into the plain model.

Example:

    source: {l.weight: "f32[4,4]"}
    target: {l.weight: "f8_e4m3[4,4]", l.weight_scale_inv: "f32[1,1]"}
    finds: {l.weight_scale_inv: missing-quantisation, l.weight: dtype-kind}
"""

from __future__ import annotations

from collections.abc import Iterable

from remap.audits.category import Category
from remap.audits.comparison import Comparison
from remap.audits.finding import Finding
from remap.audits.names.parts import is_quantisation


def find(self: Category, table: Comparison) -> Iterable[Finding]:
    """By name."""
    return (self.missing(table, k) for k in table.named("missing", is_quantisation))


CATEGORY = Category("RM107", "missing-quantisation", "fail", find)
