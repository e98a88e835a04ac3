"""A tensor of an image prefix or vision tower in the model; the checkpoint has nothing of that tower.

Why: a language model's checkpoint has no eyes. The tower starts from its own checkpoint, or untrained.

Remedy: if it is loaded from elsewhere or new, use the policy magma, or levels: {missing-vision: allow}.
Where the checkpoint has a part of the tower, what is missing of it is a missing-parameter.

Example:

    source: {l.w.weight: "f32[4,4]"}
    target: {l.w.weight: "f32[4,4]", image_prefix.proj.weight: "f32[4,8]"}
    finds: {image_prefix.proj.weight: missing-vision}
"""

from __future__ import annotations

from collections.abc import Iterable

from remap.audits.category import Category
from remap.audits.comparison import Comparison
from remap.audits.finding import Finding
from remap.audits.names.parts import vision_root


def find(self: Category, table: Comparison) -> Iterable[Finding]:
    """By name, in towers of which nothing is there."""
    roots = {k: vision_root(k) for k in table.named("missing", vision_root)}
    if not roots:
        return
    given = {vision_root(k) for k in table.offered}
    for key, root in roots.items():
        if root not in given:
            yield self.missing(table, key, root)


CATEGORY = Category("RM105", "missing-vision", "fail", find)
