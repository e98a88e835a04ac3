"""A tensor of an image prefix or vision tower in the checkpoint; the model has nothing of that tower.

Why: a multimodal checkpoint is loaded into its language model. That can be what is wanted.

Remedy: if so, say levels: {unexpected-vision: allow}; else build the model with its tower.

Example:

    source: {l.w.weight: "f32[4,4]", vision_tower.conv.weight: "f32[4,3,2,2]"}
    target: {l.w.weight: "f32[4,4]"}
    finds: {vision_tower.conv.weight: unexpected-vision}
"""

from __future__ import annotations

from collections.abc import Iterable

from remap.audits.category import Category
from remap.audits.comparison import Comparison
from remap.audits.finding import Finding
from remap.audits.names.parts import vision_root


def find(self: Category, table: Comparison) -> Iterable[Finding]:
    """By name, in towers of which the target has nothing."""
    roots = {k: vision_root(k) for k in table.named("unexpected", vision_root)}
    if not roots:
        return
    wanted = {vision_root(k) for k in table.target.specs}
    for key, root in roots.items():
        if root not in wanted:
            yield self.unexpected(table, key, root)


CATEGORY = Category("RM205", "unexpected-vision", "fail", find)
