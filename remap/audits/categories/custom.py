"""Categories that a policy or a pack adds, as data: patterns of keys."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from remap.audits import registry
from remap.audits.category import Category
from remap.audits.comparison import Comparison
from remap.audits.finding import Finding
from remap.audits.policy import Custom, Pattern, Policy
from remap.packs import Pack

_IN_PART = {"missing-adapter": "partial-adapter", "missing-vision": "missing-parameter"}
"""Where the source has a part of an adapter or a tower, what is missing of it is something else."""


def customs(policy: Policy) -> Iterator[Category]:
    """The categories of a policy: ``missing-<name>`` and ``unexpected-<name>`` each."""
    for custom in policy.categories:
        yield _category(custom, "missing", "RM190")
        yield _category(custom, "unexpected", "RM290")


def with_packs(policy: Policy, packs: Iterable[Pack]) -> Policy:
    """The policy with the categories of the packs, and of those that they use, behind its own."""
    found = [
        Custom(name, tuple(Pattern(t.text) for t in templates))
        for pack in packs
        for one in _all(pack)
        for name, templates in one.categories.items()
    ]
    return replace(policy, categories=(*policy.categories, *found)) if found else policy


def _all(pack: Pack) -> Iterator[Pack]:
    yield pack
    for used in pack.used:
        yield from _all(used)


def _category(custom: Custom, side: str, code: str) -> Category:
    name = f"{side}-{custom.name}"
    if name in registry.names():
        code = registry.get(name).code

    def find(self: Category, table: Comparison) -> Iterable[Finding]:
        keys = table.missing if side == "missing" else table.unexpected
        found = {k: p.text for k in keys if (p := _matching(custom, k))}
        category = self
        if name in _IN_PART and found and any(_matching(custom, k) for k in table.offered):
            category = registry.get(_IN_PART[name])
        make = category.missing if side == "missing" else category.unexpected
        return (make(table, k, f"matches {text}") for k, text in found.items())

    return Category(code, name, "fail", find)


def _matching(custom: Custom, key: str) -> Pattern | None:
    return next((p for p in custom.patterns if p.matches(key)), None)
