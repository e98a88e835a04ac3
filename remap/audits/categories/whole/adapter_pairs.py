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
from remap.audits.names.adapters import partner
from remap.types import TensorSpec


def find(self: Category, table: Comparison) -> Iterable[Finding]:
    """Pairs among the offered keys."""
    for key, spec in table.offered.items():
        if "lora" not in key and "hada" not in key:
            continue
        other = partner(key)
        if not other:
            continue
        found = table.offered.get(other)
        if found is None:
            yield self.unexpected(table, key, f"there is no {other}")
        elif "_A" in key and "embedding" not in key and _ranks_differ(table, spec, found):
            ranks = f"its rank is {spec.shape[0]}, that of {other} is {found.shape[1]}"
            yield self.unexpected(table, key, ranks)


def _ranks_differ(table: Comparison, a: TensorSpec, b: TensorSpec) -> bool:
    return not table.unshaped and len(a.shape) == len(b.shape) == 2 and a.shape[0] != b.shape[1]


CATEGORY = Category("RM403", "adapter-pair", "fail", find, claims=False)
