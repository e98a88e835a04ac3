"""A tensor of the model that the checkpoint does not give.

Why: it keeps its initial value. Training starts from random weights there, and nothing says so.

Remedy: if the checkpoint has it under another name, rename it with a pack (the report names the nearest key);
if it is new on purpose, let a policy say so, with a count.

Example:

    source: {a.weight: "f32[4]"}
    target: {a.weight: "f32[4]", b.weight: "f32[4]"}
    finds: {b.weight: missing-parameter}
"""

from __future__ import annotations

from collections.abc import Iterable

from remap.audits.category import Category
from remap.audits.clues.nearest import Nearest
from remap.audits.comparison import Comparison
from remap.audits.finding import Finding
from remap.audits.names.ties import embedding_of, is_head, tied_by_config


def find(self: Category, table: Comparison) -> Iterable[Finding]:
    """All that is left. What is near, and what may be tied, is told."""
    near = Nearest(table)
    heads = frozenset(table.named("missing", is_head))
    for key in table.missing:
        yield self.missing(table, key, near.detail(key) or (_tie(table, key) if key in heads else ""))


def _tie(table: Comparison, key: str) -> str:
    embedding = embedding_of(key, table.offered)
    if not embedding or table.target.specs.get(embedding) != table.target.specs[key]:
        return ""
    if table.target.ties is None:
        known = "the target does not say so (a model does, a list of names does not)"
        return f"it may be tied to {embedding}; {known}"
    if tied_by_config(table.source.config):
        return f"the checkpoint's config ties it to {embedding}; the target has a tensor of its own"
    return ""


CATEGORY = Category("RM101", "missing-parameter", "fail", find)
