"""The nearest of the other side's keys: a weight that was misnamed is told by its name and shape."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

from remap.audits.comparison import Comparison
from remap.audits.names.ties import role
from remap.types import TensorSpec

ENOUGH = 60
"""Likeness in percent from which a name is worth telling."""
MOST = 200
"""Missing keys that are looked up one by one; where more are missing, names are not the reason."""


class Nearest:
    """Finds for a missing key the unexpected one that is most like it, of the same shape."""

    def __init__(self, table: Comparison) -> None:
        self.table = table

    @cached_property
    def _by_shape(self) -> Mapping[object, list[str]]:
        found: dict[object, list[str]] = {}
        for key in self.table.excess:
            found.setdefault(self._shape(self.table.offered[key]), []).append(key)
        return {shape: sorted(keys) for shape, keys in found.items()}

    def _shape(self, spec: TensorSpec) -> object:
        return None if self.table.unshaped else spec.shape

    def detail(self, key: str) -> str:
        """``nearest is x, which has no place here``, or nothing."""
        near = self.of(key)
        return f"nearest is {near}, which the target has no place for" if near else ""

    def of(self, key: str) -> str:
        """The nearest key; empty where there is none, or too much is missing."""
        if not self.table.excess or len(self.table.absent) > MOST:
            return ""
        from rapidfuzz.process import extractOne

        among = self._by_shape.get(self._shape(self.table.target.specs[key]), [])
        among = [k for k in among if role(k) == role(key)]
        near = extractOne(key, among, score_cutoff=ENOUGH)
        return str(near[0]) if near else ""
