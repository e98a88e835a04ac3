"""A tensor that both sides have in one shape, in types of which one can't be cast to the other.

Why: fp8, integers and packed bits are no numbers of the model until their scales are applied. torch copies
them all the same, and what comes out is something else. So do integers of one width with and without a sign.

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
        to = wanted.dtype
        if given is not to and given != to and (_kind(given) != _kind(to) or _signs(given, to)):
            yield self.shared(table, key, f"{given.name} read as {to.name}: other numbers, not a cast")


def _kind(dtype: DType) -> str:
    if dtype.is_float:
        return dtype.name if dtype.itemsize == 1 else "float"
    return "complex" if dtype.name.startswith("complex") else "integer"


def _signs(given: DType, wanted: DType) -> bool:
    """Integers of one width, one with a sign and one without. A mask is no integer."""
    return (
        given.itemsize == wanted.itemsize
        and _kind(given) == "integer"
        and "bool" not in (given.name, wanted.name)
    )


CATEGORY = Category("RM306", "dtype-kind", "fail", find)
