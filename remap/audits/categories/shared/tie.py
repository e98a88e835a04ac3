"""Two tensors of the source that the target has as one.

Why: a loader puts the one in, then the other over it. Nothing is lost where their values are the same; an
output head that was trained apart from its embedding is.

Remedy: compare: --values, where the target is a checkpoint, and load_into refuses two values for one tensor.
If they differ, build the model untied (tie_word_embeddings=False), or drop one of them by a rule.

Example:

    source: {wte.weight: "f32[8,4]", lm_head.weight: "f32[8,4]"}
    target: {wte.weight: "f32[8,4]", lm_head.weight: "f32[8,4]"}
    target_ties: {lm_head.weight: wte.weight}
    finds: {lm_head.weight: unverified-tie, wte.weight: matched}
"""

from __future__ import annotations

from collections.abc import Iterable

from remap.audits.category import Category
from remap.audits.comparison import Comparison
from remap.audits.finding import Finding


def find(self: Category, table: Comparison) -> Iterable[Finding]:
    """A remark on the later key, unless both are one in the source, or their values were compared."""
    if table.source.format == MEMORY:  # a load that was watched: where its tensors lay is not known
        return
    known = table.values.same | table.values.differ.keys() if table.values else frozenset()
    for key, first in (table.target.ties or {}).items():
        both = key in table.shared and first in table.shared
        if both and key not in known and _places(table, key) != _places(table, first):
            yield self.shared(table, key, f"the target has one tensor for this and {first}")


def _places(table: Comparison, key: str) -> tuple[str, ...]:
    ties = table.source_ties
    return tuple(ties.get(s, s) for s in table.sources(key))


MEMORY = "memory"
"""The format of what a watch saw."""
CATEGORY = Category("RM307", "unverified-tie", "warn", find, claims=False)
