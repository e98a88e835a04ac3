"""A factor of a low-rank pair without its other factor, or of another rank.

Why: lora_A without lora_B adds nothing, and two that disagree in rank can't be multiplied. It is the sign
of an adapter that was saved in part.

Remedy: save the adapter again, from all ranks and stages.

Example:

    source: {q.lora_A.weight: "f32[2,4]", k.lora_A.weight: "f32[2,4]", k.lora_B.weight: "f32[4,3]"}
    target: {q.lora_A.weight: "f32[2,4]", k.lora_A.weight: "f32[2,4]", k.lora_B.weight: "f32[4,3]"}
    finds: {q.lora_A.weight: adapter-pair, k.lora_A.weight: adapter-pair}
"""

from __future__ import annotations

from collections.abc import Iterable

from remap.audits.category import Category
from remap.audits.comparison import Comparison
from remap.audits.finding import Finding
from remap.audits.names.adapters import parts
from remap.audits.names.masks import alike
from remap.dialects import pairs
from remap.dialects.base import AdapterTensor


def find(self: Category, table: Comparison) -> Iterable[Finding]:
    """Pairs among the offered keys."""
    by_dialect: dict[str, list[AdapterTensor]] = {}
    for key in (k for several in alike(table.offered) if parts(several[0]) for k in several):
        found = parts(key)
        if found:
            by_dialect.setdefault(found[0], []).append(found[1])
    for dialect, tensors in by_dialect.items():
        for key, what in pairs.broken(tensors, table.offered, dialect, unshaped=table.unshaped):
            yield self.unexpected(table, key, what)


CATEGORY = Category("RM403", "adapter-pair", "fail", find, claims=False)
