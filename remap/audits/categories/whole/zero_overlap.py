"""Not one tensor of the checkpoint has a name that the model has.

Why: nothing at all is loaded; the model is random. strict=False says nothing. No policy, waiver or baseline
lets it pass.

Remedy: the report names the prefix, wrapper or pack that makes the names match, if there is one.

Example:

    source: {model.fc.weight: "f32[2,2]", model.fc.bias: "f32[2]"}
    target: {fc.weight: "f32[2,2]", fc.bias: "f32[2]"}
    finds: {"": zero-overlap, fc.bias: missing-parameter, model.fc.bias: unexpected-parameter}
"""

from __future__ import annotations

from collections.abc import Iterable

from remap.audits.category import Category
from remap.audits.comparison import Comparison
from remap.audits.finding import Finding


def find(self: Category, table: Comparison) -> Iterable[Finding]:
    """Nothing is shared, or nothing that is shared fits."""
    fits = table.unshaped or any(table.offered[k].shape == s.shape for k, s in table.shared.items())
    if not table.shared or not fits:
        given, wanted = len(table.offered), len(table.target.specs)
        yield Finding(
            self.code,
            self.name,
            "",
            f"none of {given:,} keys of the source fits one of the target's {wanted:,}",
        )


CATEGORY = Category("RM401", "zero-overlap", "fail", find, claims=False)
