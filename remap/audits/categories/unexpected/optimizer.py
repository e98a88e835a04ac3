"""State of an optimizer, a scheduler or a loss scaler among the checkpoint's tensors.

Why: it is no part of the model. Nothing is lost by leaving it, but for a training run that is to go on.

Remedy: none for a model; --at says where the model's own state dict lies in the file.

Example:

    source: {w.weight: "f32[4]", optimizer.state.w.exp_avg: "f32[4]"}
    target: {w.weight: "f32[4]"}
    finds: {optimizer.state.w.exp_avg: unexpected-optimizer}
"""

from __future__ import annotations

from collections.abc import Iterable

from remap.audits.category import Category
from remap.audits.comparison import Comparison
from remap.audits.finding import Finding
from remap.audits.names.parts import is_optimizer


def find(self: Category, table: Comparison) -> Iterable[Finding]:
    """By name."""
    return (self.unexpected(table, k) for k in table.named("unexpected", is_optimizer))


CATEGORY = Category("RM209", "unexpected-optimizer", "warn", find)
