"""What the carriers share: the adapter, where its tensors belong, the base's plan; and what they find."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from remap.adapters.model import Adapter
from remap.adapters.placing.places import Place
from remap.dialects.base import AdapterTensor
from remap.expr import Expr
from remap.plan import Output, Plan


@dataclass(frozen=True)
class Carried:
    """A tensor of the new adapter.

    tensor  its module and leaf; the key is not yet spelled
    rule    of the pack
    op      ``rename``, or what was done
    """

    tensor: AdapterTensor
    expr: Expr
    rule: str
    op: str


@dataclass(frozen=True)
class Job:
    """One migration.

    plan      of the base's keys
    whole     all of the base's keys are known
    problems  what can't be carried, a line each; the carriers add to it
    notes     what is to be known, likewise
    """

    adapter: Adapter
    places: tuple[Place, ...]
    plan: Plan
    whole: bool
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def of(self, *kinds: str) -> dict[str, Place]:
        """Places of some kinds by the base's key."""
        return {p.key: p for p in self.places if p.kind in kinds}

    def readers(self, places: Mapping[str, Place]) -> Iterator[tuple[Output, list[Place]]]:
        """Outputs that are made of these places' tensors, with those places. What no output is made of is a
        problem."""
        read: set[str] = set()
        for output in self.plan.outputs:
            found = [places[k] for k in output.sources if k in places]
            if found:
                read.update(p.key for p in found)
                yield output, found
        self.problems.extend(self._dropped(places[k]) for k in places if k not in read)

    def _dropped(self, place: Place) -> str:
        because = self._drops.get(place.key)
        return f"{place.key}: the packs drop it" + (f": {because}" if because else "")

    @cached_property
    def _drops(self) -> Mapping[str, str]:
        return {d.key: d.because for d in self.plan.drops}

    def value(self, tensor: AdapterTensor) -> Expr:
        """As PEFT keeps it."""
        return self.adapter.expr(tensor)


def split(key: str) -> tuple[str, str]:
    """A base's key as the module's path and the parameter's name."""
    module, _, name = key.rpartition(".")
    return module, name


def at(like: AdapterTensor, module: str, leaf: str) -> AdapterTensor:
    """The tensor of another module or leaf, wrapped and named like the old."""
    return replace(like, key="", module=module, leaf=leaf)
