"""An expression with other tensors in the place of its sources."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from remap.errors import UsageError
from remap.expr import Affine, Cast, Concat, Expr, Pad, Permute, Reshape, Same, Slice, Sum, Take


def substitute(expr: Expr, values: Mapping[str, Expr]) -> Expr:
    """``expr`` with ``values`` for the sources of these keys; the others stay. Raises UsageError where the
    types or shapes don't go together."""
    if isinstance(expr, Take):
        return values.get(expr.entry.key, expr)
    if not expr.children:
        return expr
    children = tuple(substitute(child, values) for child in expr.children)
    if isinstance(expr, (Concat, Sum, Same)):
        return replace(expr, parts=children)
    if isinstance(expr, (Slice, Reshape, Permute, Cast, Pad, Affine)):
        return replace(expr, of=children[0])
    raise UsageError("it is already a product")
