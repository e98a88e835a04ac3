"""Source and target side by side: which names both have, which only one of them has.

Categories take keys out of ``missing``, ``unexpected`` and ``shared`` as they explain them, so that each
key is explained once. The other fields never change.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from remap.audits.names.masks import alike
from remap.audits.target import Target, names_only
from remap.packs.applying.trouble import Trouble
from remap.plan import Output, Plan
from remap.types import Catalog, TensorSpec


@dataclass(frozen=True)
class Values:
    """What a comparison of values found, where both sides have them.

    same    keys with equal bytes
    differ  key -> what is known of the difference, in words
    """

    same: frozenset[str]
    differ: Mapping[str, str]


@dataclass
class Comparison:
    """Both sides, and what of them is not yet explained.

    offered     what the source gives, by the name that it would be loaded under
    missing     the target's keys that the source does not give, not yet explained
    unexpected  the source's keys that the target does not have, not yet explained
    shared      keys of both, not yet explained
    """

    source: Catalog
    target: Target
    plan: Plan | None
    values: Values | None
    offered: Mapping[str, TensorSpec]
    missing: dict[str, TensorSpec] = field(init=False)
    unexpected: dict[str, TensorSpec] = field(init=False)
    shared: dict[str, TensorSpec] = field(init=False)

    def __post_init__(self) -> None:
        wanted = self.target.specs
        self.missing = {k: s for k, s in wanted.items() if k not in self.offered}
        self.unexpected = {k: s for k, s in self.offered.items() if k not in wanted}
        self.shared = {k: s for k, s in wanted.items() if k in self.offered}
        self.absent = frozenset(self.missing)
        self.excess = frozenset(self.unexpected)

    @property
    def unshaped(self) -> bool:
        """Is one of the sides a list of names?"""
        return self.target.names_only or self.source_unshaped

    @cached_property
    def source_unshaped(self) -> bool:
        """Is the source a list of names?"""
        return names_only(self.source)

    @cached_property
    def source_ties(self) -> Mapping[str, str]:
        """The source's own key -> the first of its keys that is the same tensor; a key list may say so."""
        said = self.source.metadata.get("ties") if self.source.format == "keys" else None
        return json.loads(said) if said else self.source.aliases

    @cached_property
    def outputs(self) -> Mapping[str, Output]:
        """The plan's outputs by key; {} where nothing was planned."""
        return {o.key: o for o in self.plan.outputs} if self.plan else {}

    def sources(self, key: str) -> tuple[str, ...]:
        """The source's own keys behind the offered ``key``."""
        output = self.outputs.get(key)
        return output.sources if output else (key,) if key in self.offered else ()

    def rule(self, key: str) -> str:
        """The rules that made the name; empty where nothing was planned."""
        output = self.outputs.get(key)
        return output.rule if output else ""

    def named(self, side: Literal["missing", "unexpected"], test: Callable[[str], object]) -> Iterator[str]:
        """The keys of a side that are not yet explained and whose names pass ``test``, which has no eye for
        digits: of keys that differ in these only it is asked once."""
        left = self.missing if side == "missing" else self.unexpected
        for keys in self._alike[side] if left else ():
            if test(keys[0]):
                yield from (k for k in keys if k in left)

    @cached_property
    def _alike(self) -> Mapping[str, list[list[str]]]:
        wanted, given = self.target.specs, self.offered
        return {
            "missing": alike(k for k in wanted if k in self.absent),
            "unexpected": alike(k for k in given if k in self.excess),
        }

    def troubles(self, kind: str) -> Iterator[Trouble]:
        """What a conversion would refuse, of one kind."""
        return (t for t in (self.plan.troubles if self.plan else ()) if t.kind == kind)

    def claim(self, keys: Iterable[str]) -> None:
        """These are explained."""
        taken = frozenset(keys)
        for side in (self.missing, self.unexpected, self.shared):
            for key in taken & side.keys():
                del side[key]


def compare(source: Catalog, target: Target, plan: Plan | None, values: Values | None = None) -> Comparison:
    """The comparison of a plan's outputs with a target; of the source as it is without a plan."""
    if plan is None:
        offered = {k: e.spec for k, e in source.entries.items()}
    else:
        offered = {o.key: o.expr.spec for o in plan.outputs}
    return Comparison(source, target, plan, values, offered)
