"""Moving tensors into a model, one at a time: read (or computed, where a rule says so), put, forgotten.

Memory beyond the model's own is that of one tensor. Ties are kept; a module's own loading code is honoured
(see ``torch_places``). Should a file turn out damaged while it is read, the model is partly loaded: the
error says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import torch
from torch import nn

from remap.audits.report import Report
from remap.checkpoint import Checkpoint
from remap.comparing.digests import digests
from remap.dtypes import dtype as find_dtype
from remap.errors import RemapError, UsageError
from remap.expr import Cast, Expr, Take, ranges
from remap.expr.blocks import evaluate
from remap.integrations.torch_places import Place, expanded, on_meta, places, share, tied
from remap.integrations.watching.torch_state import quietly
from remap.integrations.watching.watch import seen_strict
from remap.types import Catalog

SHOWN = 8
"""Names in a note of the report; the rest are counted."""


class Transfer:
    """Moves what was agreed on.

    loaded  key of the model -> expression
    assign, device  as in ``load_into``
    """

    def __init__(
        self,
        model: nn.Module,
        source: Catalog,
        loaded: dict[str, Expr],
        assign: bool | None,
        device: str | torch.device | None,
    ) -> None:
        self.model = model
        self.checkpoint = Checkpoint(source)
        self.places = places(model)
        self.groups = tied(self.places)
        self.loaded = loaded
        self.assign = assign
        self.device = device

    def run(self, report: Report) -> Report:
        """Load everything; gives the report, with a note of what is on the meta device still.

        Raises UsageError before anything is touched: assign=False can't be kept, two keys of one tensor have
        two values. Raises Damaged, the model partly loaded, where bytes are not there or are wrong.
        """
        self._check_ties(report)
        self._check_memory(report)
        done: set[str] = set()
        try:
            with quietly():  # it was audited; a watch need not see the parts
                for unit in self._units():
                    self._load(unit, done)
        except RemapError as e:
            e.what += f" (the model is partly loaded: {len(done)} of {len(self.loaded)} tensors)"
            raise
        seen_strict()
        left = on_meta(self.model)
        return replace(report, notes=(*report.notes, _on_meta(left))) if left else report

    def _units(self) -> Iterator[tuple[str, ...]]:
        """Keys that go together: those of a module with loading code of its own, else one at a time."""
        together: dict[int, list[str]] = {}
        for key in self.loaded:
            place = self.places.get(key)
            if place is None or place.plain:
                yield (key,)
            else:
                together.setdefault(id(place.owner), []).append(key)
        yield from map(tuple, together.values())

    def _load(self, unit: tuple[str, ...], done: set[str]) -> None:
        place = self.places.get(unit[0])
        if place is not None and place.plain:
            if not done.intersection(self.groups[unit[0]]):
                self._put(unit[0], place)
        else:
            self._hand_over(unit, place)
        done.update(unit)

    def _put(self, key: str, place: Place) -> None:
        tensor, there = value(self.checkpoint, self.loaded[key]), place.tensor
        if not self._assigns(place, self.loaded[key]):
            with torch.no_grad():
                there.copy_(share(tensor, there))
            return
        new = place.put(share(tensor.to(self._device(there)), there))
        for other in self.groups[key]:
            self.places[other].put(new)

    def _hand_over(self, unit: tuple[str, ...], place: Place | None) -> None:
        """Through the owner's loading code; the model's where a hook made the name."""
        owner, prefix = (place.owner, place.prefix) if place else (self.model, "")
        old = {k: self.places[k].tensor for k in unit if k in self.places}
        if place is None:
            assign = bool(on_meta(self.model)) if self.assign is None else self.assign
        else:
            assign = any(self._assigns(self.places[k], self.loaded[k]) for k in old)
        state = {}
        for key in unit:
            tensor = value(self.checkpoint, self.loaded[key])
            if key in old:
                tensor = tensor.to(self._device(old[key])) if assign else tensor
                tensor = share(tensor, old[key])
            state[key.removeprefix(prefix)] = tensor
        result = owner.load_state_dict(state, strict=False, assign=assign)
        if result.unexpected_keys:
            raise UsageError(
                f"{type(owner).__name__} does not load what its own state_dict lists",
                problems=[f"{prefix}{k}" for k in result.unexpected_keys],
            )
        for key, before in old.items():
            new = self.places[key].tensor
            for other in self.groups[key] if new is not before else ():
                self.places[other].put(new)

    def _assigns(self, place: Place, expr: Expr) -> bool:
        if self.assign is not None:
            return self.assign
        there = place.tensor
        return there.is_meta or expanded(there) or find_dtype(str(there.dtype)) != expr.spec.dtype

    def _device(self, there: torch.Tensor) -> torch.device:
        if self.device is not None:
            return torch.device(self.device)
        return torch.device("cpu") if there.is_meta else there.device

    def _check_memory(self, report: Report) -> None:
        if self.assign is not False:
            return
        kinds: tuple[tuple[Callable[[torch.Tensor, Expr], bool], str], ...] = (
            (lambda t, e: t.is_meta, "has no memory (meta device)"),
            (lambda t, e: expanded(t), "has one place in memory for several elements (Tensor.expand)"),
            (lambda t, e: find_dtype(str(t.dtype)) != e.spec.dtype, "would change its type"),
        )
        odd = [
            f"{k}: {why}"
            for k, e in self.loaded.items()
            for is_odd, why in kinds
            if k in self.places and is_odd(self.places[k].tensor, e)
        ]
        if odd:
            raise UsageError(
                "nothing was loaded: assign=False copies into the model's own memory",
                where=report.source,
                problems=odd,
                remedy="leave assign out",
            )

    def _check_ties(self, report: Report) -> None:
        """Two keys of one tensor must have one value. Read only where it isn't plain that they have."""
        several = [
            [k for k in group if k in self.loaded]
            for group in dict.fromkeys(self.groups.values())
            if len(group) > 1
        ]
        odd = []
        for keys in several:
            exprs = {k: self.loaded[k] for k in keys}
            if len(keys) < 2 or _is_one([*exprs.values()]):
                continue
            found = digests(exprs)
            if len(set(found.values())) > 1:
                odd.append(" and ".join(keys))
        if odd:
            raise UsageError(
                "nothing was loaded: the model has one tensor where the checkpoint has several values",
                where=report.source,
                problems=odd,
                remedy="build the model untied (tie_word_embeddings=False), or drop one of them by a rule",
            )


def value(checkpoint: Checkpoint, expr: Expr) -> torch.Tensor:
    """The value of an expression over ``checkpoint``, on the CPU, of its own memory. What is read as it is
    has its checksum compared. Raises Damaged."""
    if isinstance(expr, Take):
        return checkpoint[expr.entry.key]
    if isinstance(expr, Cast):
        return value(checkpoint, expr.of).to(getattr(torch, expr.dtype.name))
    return evaluate(expr).contiguous()


def _is_one(exprs: list[Expr]) -> bool:
    first = ranges.lower(exprs[0])
    return first is not None and all(ranges.lower(e) == first for e in exprs[1:])


def _on_meta(names: list[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return (
        f"{len(names)} tensors of the model are on the meta device still, and have to be initialised: "
        f"{', '.join(names[:SHOWN])}{more}"
    )
