"""A tensor whose layout neither its name nor its shape can prove: a square matrix, or one whose shape is
not known.

Why: transposed, or with its heads in another order, it has the same name and shape. Such a model runs and
is wrong.

Remedy: compare values where the other side has them (--values); a pack that was proved on values is proof,
too.

Example:

    source: {q.weight: "f32[4,4]", up.weight: "f32[8,4]"}
    target: {q.weight: "f32[4,4]", up.weight: "f32[8,4]"}
    finds: {q.weight: unverified-layout, up.weight: matched}
"""

from __future__ import annotations

from collections.abc import Iterable

from remap.audits.category import Category
from remap.audits.comparison import Comparison
from remap.audits.finding import Finding


def find(self: Category, table: Comparison) -> Iterable[Finding]:
    """A remark on shared keys whose values were not compared."""
    known = table.values.same | table.values.differ.keys() if table.values else frozenset()
    if table.unshaped:
        for key in table.shared:
            yield Finding(self.code, self.name, key, "only the name was compared", table.sources(key))
        return
    for key, spec in table.shared.items():
        if len(spec.shape) == 2 and spec.shape[0] == spec.shape[1] > 1 and key not in known:
            yield self.shared(table, key, "square: a transposed one would look the same")


CATEGORY = Category("RM305", "unverified-layout", "allow", find, claims=False)
