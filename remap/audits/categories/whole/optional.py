"""Tensors that the target may have, of which the checkpoint has none: a layout calls them optional.

Why: whether a model has them only its author knows: adapters, an image prefix, a second set of norms. They
are not counted as missing.

Remedy: if the model has them, say so to the layout: --target-param mlp_adapter=present. Then they are
missing.

Example:

    source: {0.word_embeddings.weight: "f32[8,4]"}
    target: {0.word_embeddings.weight: "f32[8,4]"}
    target_optional: ["{i+2}.mlp.adapter.0.weight, 24 tensors; --target-param mlp_adapter=present wants them"]
    finds: {"": optional-absent}
"""

from __future__ import annotations

from collections.abc import Iterable

from remap.audits.category import Category
from remap.audits.comparison import Comparison
from remap.audits.finding import Finding


def find(self: Category, table: Comparison) -> Iterable[Finding]:
    """What the target says of itself, one a group."""
    return (Finding(self.code, self.name, "", text) for text in table.target.optional)


CATEGORY = Category("RM410", "optional-absent", "allow", find, claims=False)
