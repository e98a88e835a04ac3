"""A tensor of an adapter in the checkpoint that the model has no place for.

Why: the adapter was not put into the model before loading, or its parts have other names there. Without it
the model is the base model.

Remedy: build the model with its adapters (peft: get_peft_model; MAGMA: add_adapters), or migrate the
adapter's names.

Example:

    source: {l.q.weight: "f32[4,4]", l.q.lora_A.weight: "f32[2,4]", l.q.lora_B.weight: "f32[4,2]"}
    target: {l.q.weight: "f32[4,4]"}
    finds: {l.q.lora_A.weight: unexpected-adapter, l.q.lora_B.weight: unexpected-adapter}
"""

from __future__ import annotations

from collections.abc import Iterable

from remap.audits.category import Category
from remap.audits.comparison import Comparison
from remap.audits.finding import Finding
from remap.audits.names.adapters import kind


def find(self: Category, table: Comparison) -> Iterable[Finding]:
    """By name."""
    for key in table.unexpected:
        name = kind(key)
        if name:
            yield self.unexpected(table, key, name)


CATEGORY = Category("RM204", "unexpected-adapter", "fail", find)
