"""A tensor that both sides have in one shape, in types of which one can't be cast to the other.

Why: fp8, integers and packed bits are no numbers of the model until their scales are applied. torch copies
them all the same, and what comes out is something else.

Remedy: dequantise the checkpoint with the library that it is from, or build the model quantised as it is.

Example:

    source: {a.weight: "i8[4]", b.weight: "f8_e4m3[4]", c.mask: "u8[4]"}
    target: {a.weight: "f16[4]", b.weight: "bf16[4]", c.mask: "bool[4]"}
    finds: {a.weight: dtype-kind, b.weight: dtype-kind, c.mask: dtype-mismatch}
"""

from __future__ import annotations

from collections.abc import Iterable

from remap.audits.category import Category
from remap.audits.comparison import Comparison
from remap.audits.finding import Finding
from remap.dtypes import DType


def find(self: Category, table: Comparison) -> Iterable[Finding]:
    """Shared keys of another kind of numbers."""
    if table.unshaped:
        return
    for key, wanted in table.shared.items():
        given = table.offered[key].dtype
        if given is not wanted.dtype and _kind(given) != _kind(wanted.dtype):
            yield self.shared(
                table, key, f"{given.name} read as {wanted.dtype.name}: other numbers, not a cast"
            )


def _kind(dtype: DType) -> str:
    if dtype.is_float:
        return dtype.name if dtype.itemsize == 1 else "float"
    return "complex" if dtype.name.startswith("complex") else "integer"


CATEGORY = Category("RM306", "dtype-kind", "fail", find)
