"""Outputs that are one tensor under several names, because their source is."""

from __future__ import annotations

from collections.abc import Mapping

from remap.expr.nodes import Cast, Expr, Take


def tied_outputs(tensors: Mapping[str, Expr]) -> dict[str, str]:
    """Key -> first key, for outputs that take the same bytes, as they are or cast to the same type."""
    first: dict[object, str] = {}
    ties: dict[str, str] = {}
    for key, expr in tensors.items():
        source = expr.of if isinstance(expr, Cast) else expr
        if isinstance(source, Take) and source.entry.location and expr.spec.numel:
            kept = first.setdefault((source.entry.location, source.spec, expr.spec), key)
            if kept != key:
                ties[key] = kept
    return ties
