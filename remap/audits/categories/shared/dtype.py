"""A tensor that both sides have in one shape, in different element types.

Why: torch casts it while copying, silently: a wider type loses nothing, a narrower one rounds.

Remedy: convert with --dtype, or build the model in the checkpoint's type.

Example:

    source: {a.weight: "bf16[4]", b.weight: "f32[4]"}
    target: {a.weight: "f32[4]", b.weight: "f32[4]"}
    finds: {a.weight: dtype-mismatch, b.weight: matched}
"""

from __future__ import annotations

from collections.abc import Iterable

from remap.audits.category import Category
from remap.audits.comparison import Comparison
from remap.audits.finding import Finding
from remap.dtypes import DType


def find(self: Category, table: Comparison) -> Iterable[Finding]:
    """Shared keys of another type; ``dtype-kind`` was asked before."""
    if table.unshaped:
        return
    for key, wanted in table.shared.items():
        given = table.offered[key].dtype
        if given is not wanted.dtype and given != wanted.dtype:
            yield self.shared(table, key, _what(given, wanted.dtype))


def _what(given: DType, wanted: DType) -> str:
    if "bool" in (given.name, wanted.name):
        return f"{given.name} read as {wanted.name}"
    narrow = given.itemsize > wanted.itemsize
    if not given.is_float and not given.name.startswith("complex"):
        return f"{given.name} cut to {wanted.name}" if narrow else f"{given.name} widened to {wanted.name}"
    if narrow or {given.short, wanted.short} == {"f16", "bf16"}:
        return f"{given.name} rounded to {wanted.name}"
    return f"{given.name} widened to {wanted.name}"


CATEGORY = Category("RM302", "dtype-mismatch", "warn", find)
