"""An expression over base weights -> the change of its value, given the changes of the weights.

Every node but a few is linear, so the change of ``f(W)`` is ``f(dW)``, with the offsets left out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from remap.adapters.algebra.reshape import reshaped
from remap.adapters.algebra.terms import Delta, NotLowRank, Term, cut, moved, permuted
from remap.expr import (
    Affine,
    Cast,
    Concat,
    Constant,
    Expr,
    Normal,
    Pad,
    Permute,
    Reshape,
    Same,
    Slice,
    Sum,
    Take,
)

Changes = Callable[[str], Delta | None]
"""Key of a base weight -> its change; None where it has none."""


def follow(expr: Expr, changes: Changes) -> Delta:
    """The change of ``expr``. Raises NotLowRank."""
    if isinstance(expr, Take):
        return changes(expr.entry.key) or Delta(expr.spec.shape)
    if isinstance(expr, (Constant, Normal)) or not expr.spec.numel:
        return Delta(expr.spec.shape)
    parts = [follow(child, changes) for child in expr.children]
    shape = expr.spec.shape
    if isinstance(expr, Cast):
        return parts[0]
    if isinstance(expr, Slice):
        pieces = (cut(t, expr.dim, expr.start, expr.stop) for t in parts[0].terms)
        return Delta(shape, tuple(t for t in pieces if t is not None))
    if isinstance(expr, Reshape):
        before = expr.of.spec.shape
        return Delta(shape, tuple(reshaped(t, before, shape) for t in parts[0].terms))
    if isinstance(expr, Permute):
        return Delta(shape, tuple(permuted(t, expr.dims) for t in parts[0].terms))
    if isinstance(expr, Pad):
        return Delta(shape, tuple(_shifted(t, expr.dim, expr.before) for t in parts[0].terms))
    if isinstance(expr, Affine):
        return Delta(shape, tuple(replace(t, scale=t.scale * expr.scale) for t in parts[0].terms))
    if isinstance(expr, Sum):
        return Delta(shape, tuple(t for p in parts for t in p.terms))
    if isinstance(expr, Concat):
        return _joined(expr, parts)
    if isinstance(expr, Same):
        return _agreed(parts)
    raise NotLowRank("the weight is already a product")


def _shifted(term: Term, dim: int, by: int) -> Term:
    start, stop = term.box[dim]
    return moved(term, dim, (start + by, stop + by))


def _joined(expr: Concat, parts: list[Delta]) -> Delta:
    terms: list[Term] = []
    start = 0
    for part in parts:
        terms += [_shifted(t, expr.dim, start) for t in part.terms]
        start += part.shape[expr.dim]
    return Delta(expr.spec.shape, tuple(terms))


def _agreed(parts: list[Delta]) -> Delta:
    if any(p != parts[0] for p in parts[1:]):
        raise NotLowRank("copies that become one tensor are changed differently")
    return parts[0]
