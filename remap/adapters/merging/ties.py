"""Tensors that are one in a base: what becomes of the second name where the first is changed.

PEFT changes a tied tensor in its place, so both names change. What ``modules_to_save`` trained is a copy:
it is written beside the other, and the two are one no more. Source: peft 0.21 ``tuners/lora/layer.py``
(``merge``), ``utils/other.py`` (``ModulesToSaveWrapper``).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Set

from remap.adapters.placing.heads import SETTING, tied_silently
from remap.audits.names.ties import role
from remap.expr import Expr
from remap.plan import Plan
from remap.types import Catalog


class Tied:
    """The ties of a base, of which the keys ``apart`` leave."""

    def __init__(self, base: Catalog, apart: Set[str]) -> None:
        self._first = {k: base.aliases.get(k, k) for k in base.entries}
        self.apart = apart
        self._followers: dict[str, str] = {}

    def parted(self, key: str) -> bool:
        """Does it leave what it is tied to, or is it left?"""
        return any(self._first[key] == self._first[a] for a in self.apart)

    def followers(self, made: Mapping[str, Expr], problems: list[str]) -> dict[str, Expr]:
        """What comes to have the new value of another key. Changes that differ are added to ``problems``."""
        changed: dict[str, str] = {}
        for key in (k for k in made if k not in self.apart):
            before = changed.setdefault(self._first[key], key)
            if made[before] != made[key]:
                problems.append(f"{before} and {key} are tied, and are changed differently")
        self._followers = {k: changed[f] for k, f in self._first.items() if f in changed and k not in made}
        return {k: made[leader] for k, leader in self._followers.items()}

    def notes(self, given: Catalog, changed: Iterable[str], written: Collection[str]) -> Iterator[str]:
        """What is to be known of them. ``given`` is the base as its files have it."""
        for key, leader in self._followers.items():
            yield f"{key} is tied to {leader}, which is changed: it changes, too"
        for first in sorted({self._first[key] for key in self.apart}):
            two = [k for k in written if self._first[k] == first]
            if len(two) > 1:
                yield f"{' and '.join(two)} are one in the base, and two from here on: one was trained apart"
        for key in changed if tied_silently(given) else ():
            if role(key) == "embedding" and not self.parted(key):
                yield f"{key} is the output head, too, so both change; in PEFT's model the head does not"


def says(plan: Plan) -> dict[str, object]:
    """What ``config.json`` is to say of a plan that parts a head from its embedding."""
    made = {o.key: o.expr for o in plan.outputs}
    parted = any(made[a] != made[b] for a, b in plan.catalog.aliases.items() if a in made and b in made)
    return {SETTING: False} if parted and plan.catalog.config.get(SETTING, True) is not False else {}
