"""Categories that a policy adds, as data: patterns of keys."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from remap.audits import registry
from remap.audits.category import Category
from remap.audits.comparison import Comparison
from remap.audits.finding import Finding
from remap.audits.policy import Custom, Policy


def customs(policy: Policy) -> Iterator[Category]:
    """The categories of a policy: ``missing-<name>`` and ``unexpected-<name>`` each."""
    for custom in policy.categories:
        yield _category(custom, "missing", "RM190")
        yield _category(custom, "unexpected", "RM290")


def _category(custom: Custom, side: str, code: str) -> Category:
    name = f"{side}-{custom.name}"
    if name in registry.names():
        code = registry.get(name).code

    def find(self: Category, table: Comparison) -> Iterable[Finding]:
        keys = table.missing if side == "missing" else table.unexpected
        for key in keys:
            pattern = next((p for p in custom.patterns if p.matches(key)), None)
            if pattern:
                make = self.missing if side == "missing" else self.unexpected
                yield make(table, key, f"matches {pattern.text}, a category of the policy")

    return Category(code, name, "fail", find)
