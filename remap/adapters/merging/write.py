"""Base + adapters -> the merged checkpoint on disk: ``remap adapter merge`` and ``unmerge``."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from pathlib import Path

from remap.adapters.merging.merge import Weighed, merged, taken_out
from remap.adapters.merging.ties import says
from remap.adapters.read import read
from remap.adapters.write import write_model
from remap.errors import UsageError
from remap.opening import Source, catalog
from remap.output import How
from remap.plan import Plan
from remap.receipt import Receipt


def merge(
    base: Source,
    adapters: Sequence[Source],
    destination: str | Path,
    *,
    weights: Sequence[float] = (),
    undo: bool = False,
    at: str | None = None,
    to: str | None = None,
    shard_size: int | None = None,
    how: How | None = None,
) -> tuple[Receipt, Plan]:
    """Write the base with the adapters' changes in it; the receipt, and the plan, whose changed outputs have
    the op ``merge``.

    weights  how much of each is taken: one for all, or one for each; 1 without
    undo     the base has them: take them out
    at       where the base's state dict lies in a torch file

    Raises UsageError, InputError; nothing is written then.
    """
    given = tuple(weights) or (1.0,)
    if len(given) not in (1, len(adapters)):
        raise UsageError(
            f"{len(given)} weights for {len(adapters)} adapters", remedy="give one for all, or one for each"
        )
    odd = [f"{w:g}" for w in given if not isfinite(w)]
    if odd:
        raise UsageError("a weight is a finite number", problems=odd)
    each = given * len(adapters) if len(given) == 1 else given
    weighed = [Weighed(read(a), w) for a, w in zip(adapters, each, strict=True)]
    plan = (taken_out if undo else merged)(catalog(base, at=at), weighed)
    return write_model(plan, destination, how or How(), to=to, shard_size=shard_size, says=says(plan)), plan
