"""Partition classes on their way through a pack: each key has the class of the rule that made it.

What a rule says of it (``partition:``) stays with it. A key that is only renamed keeps its class. Where the
pack's target layout knows a key, that says the class of what no rule did.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from remap.expr import Expr
from remap.packs.applying.compose import After
from remap.packs.applying.gather import Made
from remap.partitions.base import Partition
from remap.types import TensorSpec

Ride = Callable[[str, Mapping[str, TensorSpec]], Mapping[str, Partition]]
"""(a layout's name, keys with their specs) -> how ranks divide those that the layout knows."""


class Riding:
    """The class of every key of a table, None where it is not known."""

    def __init__(self, start: Sequence[Partition | None], ride: Ride) -> None:
        self.classes = list(start)
        self._stated = [False] * len(self.classes)
        self._ride = ride

    def advance(self, after: After) -> None:
        """Follow a stage."""
        classes: list[Partition | None] = []
        stated: list[bool] = []
        for origin in after.origins:
            rule = origin.rule if isinstance(origin, Made) else after.outcome.rules[origin]
            said = rule.partition if rule is not None else None
            if said is not None:
                classes.append(said.resolve(after.numbers))
                stated.append(True)
            elif isinstance(origin, Made):
                classes.append(None)
                stated.append(False)
            else:
                classes.append(self.classes[origin])
                stated.append(self._stated[origin])
        self.classes, self._stated = classes, stated

    def arrive(self, layout: str | None, keys: Sequence[str], exprs: Sequence[Expr]) -> None:
        """A pack is done, and leads to ``layout``."""
        if layout is None:
            return
        known = self._ride(layout, {k: e.spec for k, e in zip(keys, exprs, strict=True)})
        for place, key in enumerate(keys):
            if key in known and not self._stated[place]:
                self.classes[place] = known[key]
