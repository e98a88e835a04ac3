"""A buffer in the checkpoint that the model computes for itself and does not load.

Why: older libraries saved masks, rotary frequencies and position ids; newer ones don't read them. Nothing
is lost.

Remedy: none needed; a pack for this family drops them with the reason.

Example:

    source: {w.weight: "f32[4]", attention.masked_bias: "f32[]", attention.rotary_emb.inv_freq: "f32[8]"}
    target: {w.weight: "f32[4]"}
    finds: {attention.masked_bias: unexpected-buffer, attention.rotary_emb.inv_freq: unexpected-buffer}
"""

from __future__ import annotations

from collections.abc import Iterable

from remap.audits.category import Category
from remap.audits.comparison import Comparison
from remap.audits.finding import Finding
from remap.audits.names.buffers import is_derivable, may_be_derivable


def find(self: Category, table: Comparison) -> Iterable[Finding]:
    """By name and shape."""
    for key in table.named("unexpected", may_be_derivable):
        if is_derivable(key, table.unexpected[key], unshaped=table.source_unshaped):
            yield self.unexpected(table, key, "stale; the model computes it")


CATEGORY = Category("RM202", "unexpected-buffer", "warn", find)
