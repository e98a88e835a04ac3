"""Do the copies that tensor-parallel ranks hold agree?"""

from __future__ import annotations

from remap.comparing.digests import digests
from remap.errors import Damaged
from remap.expr import Expr, Take
from remap.partitions.base import Copies
from remap.partitions.replicated import Replicated
from remap.types import Catalog


def check_copies(catalog: Catalog, copies: Copies) -> list[str]:
    """A warning for replicated tensors that differ between the ranks of ``catalog``, with the largest
    difference. Raises Damaged instead where copies must agree (``error``)."""
    held = [k for k, cls in catalog.partitions.items() if isinstance(cls, Replicated)]
    tables = [{k: Take(t[k]) for k in held} for t in catalog.ranks]
    first, *others = [digests(t) for t in tables] or [{}]
    apart = [k for k in held if any(found[k] != first[k] for found in others)]
    if not apart:
        return []
    largest = {k: max(difference(tables[0][k], t[k]) for t in tables[1:]) for k in apart}
    lines = [f"{k}: by up to {n:.3g}" for k, n in sorted(largest.items(), key=lambda item: -item[1])]
    if copies == "error":
        raise Damaged(
            f"{len(apart)} tensors of which every rank has a copy differ between ranks",
            where=catalog.root,
            problems=lines,
            remedy="ranks of a long run drift apart: --on-disagree mean averages them, first takes rank 0's",
        )
    took = {"first": "that of rank 0 was taken", "mean": "they were averaged"}[copies]
    return [f"{len(apart)} tensors differ between ranks, {took}; most {lines[0]}"]


def difference(a: Expr, b: Expr) -> float:
    """The largest difference between the elements of two tensors of one shape."""
    from remap.expr.blocks import evaluate

    return float((evaluate(a).double() - evaluate(b).double()).abs().max())
