"""The nearest of the other side's keys: a weight that was misnamed is told by its name and shape.

Names are compared without their numbers, once for all layers; of the keys that have the nearest name, the one
with the same numbers is told.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property

from remap.audits.comparison import Comparison
from remap.audits.names.ties import role
from remap.audits.suggest.skeletons import Digits, Pieces, group
from remap.packs.matching.keyset import numbers
from remap.types import TensorSpec

ENOUGH = 60
"""Likeness in percent from which a name is worth telling."""
MOST = 200
"""Missing names that are looked up; where more are missing, names are not the reason."""


class Nearest:
    """Finds for a missing key the unexpected one that is most like it, of the same shape."""

    def __init__(self, table: Comparison) -> None:
        self.table = table
        self._near: dict[tuple[Pieces, object], Pieces | None] = {}

    @cached_property
    def _by_shape(self) -> Mapping[object, dict[Pieces, dict[Digits, str]]]:
        """Shape -> pieces of a name between its numbers -> the numbers -> the key."""
        found: dict[object, list[str]] = {}
        for key in self.table.offered:  # in its order, so that the report is the same each time
            if key in self.table.excess:
                found.setdefault(self._shape(self.table.offered[key]), []).append(key)
        return {shape: group(keys) for shape, keys in found.items()}

    @cached_property
    def _nothing_fits(self) -> bool:
        """Are all of many names others? One change explains that, or it is another model."""
        return MOST < len(self.table.absent) == len(self.table.target.specs)

    def _shape(self, spec: TensorSpec) -> object:
        return None if self.table.unshaped else spec.shape

    def detail(self, key: str) -> str:
        """``nearest is x, which has no place here``, or nothing."""
        near = self.of(key)
        return f"nearest is {near}, which the target has no place for" if near else ""

    def of(self, key: str) -> str:
        """The nearest key; empty where there is none, or too much is missing."""
        if not self.table.excess or self._nothing_fits:
            return ""
        pieces, digits = numbers(key)
        name = tuple(pieces), self._shape(self.table.target.specs[key])
        if name not in self._near:
            self._near[name] = self._name(key, tuple(digits), name[1]) if len(self._near) < MOST else None
        near = self._near[name]
        if near is None:
            return ""
        keys = self._by_shape[name[1]][near]
        return keys.get(tuple(digits)) or _most_like(key, keys.values())

    def _name(self, key: str, digits: Digits, shape: object) -> Pieces | None:
        """The nearest name, without its numbers: each is held against the key by one that has it."""
        names = self._by_shape.get(shape, {})
        one_each = {keys.get(digits) or next(iter(keys.values())): pieces for pieces, keys in names.items()}
        near = _most_like(key, sorted(k for k in one_each if role(k) == role(key)))
        return one_each[near] if near else None


def _most_like(text: str, among: Iterable[str]) -> str:
    from rapidfuzz.process import extractOne

    near = extractOne(text, list(among), score_cutoff=ENOUGH)
    return str(near[0]) if near else ""
