"""A buffer of the model that the checkpoint does not give, and that the model computes for itself.

Why: masks, rotary frequencies and position ids come from the config; versions of a library differ in
whether they save them. The model has the right value without the checkpoint.

Remedy: none needed. A buffer that was learned (running_mean) is a missing-parameter instead.

Example:

    source: {h.0.attn.c_attn.bias: "f32[12]"}
    target: {h.0.attn.c_attn.bias: "f32[12]", h.0.attn.bias: "f32[1,1,8,8]", position_ids: "i64[1,8]"}
    finds: {h.0.attn.bias: missing-buffer, position_ids: missing-buffer, h.0.attn.c_attn.bias: matched}
"""

from __future__ import annotations

from collections.abc import Iterable

from remap.audits.category import Category
from remap.audits.comparison import Comparison
from remap.audits.finding import Finding
from remap.audits.names.buffers import is_derivable, may_be_derivable


def find(self: Category, table: Comparison) -> Iterable[Finding]:
    """By name and shape; a parameter of the target is never one."""
    target = table.target
    for key in table.named("missing", may_be_derivable):
        spec = table.missing[key]
        known = target.buffers is None or key in target.buffers
        if known and is_derivable(key, spec, unshaped=target.names_only):
            yield self.missing(table, key, "the model computes it")


CATEGORY = Category("RM102", "missing-buffer", "warn", find)
