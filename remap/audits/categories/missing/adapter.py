"""A tensor of an adapter (LoRA, bottleneck, prefix, prompt) in the model; the checkpoint has no adapter at
all.

Why: this is right when adapters are put into a pretrained model before they are trained, and wrong when a
trained adapter was to be loaded.

Remedy: if it is right, use the policy magma or lora, or say so in yours with a count:
levels: {missing-adapter: allow}, expect: {missing-adapter: 96}.

Example:

    source: {l.0.mlp.w.weight: "f32[4,4]"}
    target: {l.0.mlp.w.weight: "f32[4,4]", l.0.mlp.adapter.0.weight: "f32[2,4]"}
    finds: {l.0.mlp.adapter.0.weight: missing-adapter}
"""

from __future__ import annotations

from collections.abc import Iterable

from remap.audits.category import Category
from remap.audits.comparison import Comparison
from remap.audits.finding import Finding
from remap.audits.names.adapters import kind


def find(self: Category, table: Comparison) -> Iterable[Finding]:
    """By name; ``partial-adapter`` was asked before."""
    return (self.missing(table, k, kind(k)) for k in table.named("missing", kind))


CATEGORY = Category("RM104", "missing-adapter", "fail", find)
