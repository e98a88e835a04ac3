"""A tensor of the model that shares its storage with one that the checkpoint gives.

Why: an output head that is tied to the embedding is saved once. Loading the one loads the other.

Remedy: none needed. It is only said where it is known: the model's parameters are one object, the target's
file has them at one place, or, where the target says nothing of ties (a list of names), a config.json says
tie_word_embeddings. A model whose head is its own needs a head, whatever the checkpoint's config says.

Example:

    source: {wte.weight: "f32[8,4]"}
    target: {wte.weight: "f32[8,4]", lm_head.weight: "f32[8,4]"}
    target_ties: {lm_head.weight: wte.weight}
    finds: {lm_head.weight: missing-tied, wte.weight: matched}
"""

from __future__ import annotations

from collections.abc import Iterable

from remap.audits.category import Category
from remap.audits.comparison import Comparison
from remap.audits.finding import Finding
from remap.audits.names.ties import embedding_of, tied_by_config


def find(self: Category, table: Comparison) -> Iterable[Finding]:
    """Those with a partner in their group of ties that fits."""
    groups: dict[str, list[str]] = {}
    for key, first in (table.target.ties or {}).items():
        groups.setdefault(first, [first]).append(key)
    members = {k: group for group in groups.values() for k in group}
    said = table.target.ties is None and tied_by_config(table.target.config, table.source.config)
    for key in table.missing:
        partner = next((k for k in members.get(key, ()) if _fits(table, k)), "")
        if not partner and said:
            partner = embedding_of(key, table.offered)
            if not _fits(table, partner) or table.target.specs[partner] != table.target.specs[key]:
                continue
        if partner:
            yield self.missing(table, key, f"tied to {partner}")


def _fits(table: Comparison, key: str) -> bool:
    wanted, given = table.target.specs.get(key), table.offered.get(key)
    return wanted is not None and given is not None and (table.unshaped or wanted.shape == given.shape)


CATEGORY = Category("RM103", "missing-tied", "allow", find)
