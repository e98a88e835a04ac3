"""A tensor of no elements where the model has one with elements.

Why: it was saved from a model that was partitioned (ZeRO-3) without gathering its weights: the name is
there, the values are not. Some loaders take it for a match.

Remedy: save again with the weights gathered (stage3_gather_16bit_weights_on_model_save), or rebuild them
from the optimizer's partitions (zero_to_fp32).

Example:

    source: {a.weight: "f32[0]", b.weight: "f32[4]"}
    target: {a.weight: "f32[8,2]", b.weight: "f32[4]"}
    finds: {a.weight: placeholder, b.weight: matched}
"""

from __future__ import annotations

from collections.abc import Iterable

from remap.audits.category import Category
from remap.audits.comparison import Comparison
from remap.audits.finding import Finding


def find(self: Category, table: Comparison) -> Iterable[Finding]:
    """Shared keys that are empty on the source's side only."""
    if table.unshaped:
        return
    for key, wanted in table.shared.items():
        given = table.offered[key]
        if 0 in given.shape and 0 not in wanted.shape:
            yield self.shared(
                table, key, f"{list(given.shape)} has no elements, the target has {list(wanted.shape)}"
            )


CATEGORY = Category("RM303", "placeholder", "fail", find)
