"""The categories, in the order in which they are asked: the first that explains a key has it.

Adding one is a module with a CATEGORY, and its line here.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from importlib import import_module

from remap.audits.category import Category

MODULES = (
    "whole.zero_overlap",
    "whole.collision",
    "whole.no_rule",
    "whole.unfit_rule",
    "shared.placeholder",
    "shared.shape",
    "shared.values",
    "shared.number_kind",
    "shared.dtype",
    "shared.unverified",
    "shared.tie",
    "shared.renamed",
    "shared.matched",
    "missing.extra_state",
    "missing.tied",
    "missing.buffer",
    "missing.quantisation",
    "missing.partial_adapter",
    "missing.adapter",
    "missing.vision",
    "missing.stage",
    "missing.parameter",
    "unexpected.extra_state",
    "unexpected.optimizer",
    "unexpected.tied",
    "unexpected.buffer",
    "unexpected.flat",
    "unexpected.quantisation",
    "unexpected.adapter",
    "unexpected.vision",
    "unexpected.stage",
    "unexpected.parameter",
    "whole.adapter_pairs",
    "whole.optional",
    "whole.untyped",
    "whole.coverage",
    "whole.expectation",
    "whole.unused_waiver",
    "whole.expired_waiver",
)


@cache
def categories() -> tuple[Category, ...]:
    """Every category, in order."""
    found = []
    for name in MODULES:
        module = import_module(f"remap.audits.categories.{name}")
        found.append(replace(module.CATEGORY, doc=module.__doc__ or ""))
    return tuple(found)


@cache
def names() -> frozenset[str]:
    """The names of all."""
    return frozenset(c.name for c in categories())


def get(name: str) -> Category:
    """The category of that name."""
    return next(c for c in categories() if c.name == name)
