"""A flat parameter: FSDP laid many tensors into one, and the checkpoint was saved like that.

Why: no model has a tensor of this name but one that is sharded in the very same way. All weights in it are
missing.

Remedy: unflatten it: remap reshard SRC DST --unflatten.

Example:

    source: {decoder.layers.0.flat_param_0: "f32[40]"}
    target: {decoder.layers.0.fc1.weight: "f32[8,4]", decoder.layers.0.fc1.bias: "f32[8]"}
    finds: {decoder.layers.0.flat_param_0: unexpected-flat, decoder.layers.0.fc1.bias: missing-parameter}
"""

from __future__ import annotations

from collections.abc import Iterable

from remap.audits.category import Category
from remap.audits.comparison import Comparison
from remap.audits.finding import Finding
from remap.audits.names.parts import is_flat


def find(self: Category, table: Comparison) -> Iterable[Finding]:
    """By name."""
    for key in table.named("unexpected", is_flat):
        elements = f"{table.offered[key].numel:,} elements of many tensors"
        yield self.unexpected(table, key, f"{elements}; remap reshard --unflatten takes it apart")


CATEGORY = Category("RM210", "unexpected-flat", "fail", find)
