"""A second name of a tensor that the model loads under its first.

Why: the checkpoint has both names of a tie at one place in its file; the model has one of them. Nothing is
lost.

Remedy: none needed.

Example:

    source: {wte.weight: "f32[8,4]", lm_head.weight: "f32[8,4]"}
    source_ties: {lm_head.weight: wte.weight}
    target: {wte.weight: "f32[8,4]"}
    finds: {lm_head.weight: unexpected-tied, wte.weight: matched}
"""

from __future__ import annotations

from collections.abc import Iterable

from remap.audits.category import Category
from remap.audits.comparison import Comparison
from remap.audits.finding import Finding


def find(self: Category, table: Comparison) -> Iterable[Finding]:
    """Where the source has both at one place, and another of its names is in the target."""
    ties = table.source_ties
    if not ties or not table.unexpected:
        return
    loaded = {ties.get(s, s): k for k in table.offered if k not in table.excess for s in table.sources(k)}
    for key in table.unexpected:
        places = {ties.get(s, s) for s in table.sources(key)}
        partner = loaded.get(places.pop()) if len(places) == 1 else None
        if partner:
            yield self.unexpected(table, key, f"the same tensor as {partner}")


CATEGORY = Category("RM203", "unexpected-tied", "allow", find)
