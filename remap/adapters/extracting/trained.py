"""Weights of the base that were trained in full: found by comparing with the base itself."""

from __future__ import annotations

from collections.abc import Mapping

from remap.comparing.digests import digests
from remap.errors import UsageError
from remap.expr import Take
from remap.types import Catalog, Entry


def trained(model: Mapping[str, Entry], base: Catalog) -> tuple[str, ...]:
    """Keys of ``model`` (base's name -> entry) that the base has not, or with other values.

    Raises UsageError where the base has none of them: its names are others.
    """
    there = {k: e for k, e in model.items() if k in base.entries}
    if model and not there:
        sides = (("model", model), ("base", base.entries))
        raise UsageError(
            "the base has none of the model's keys",
            where=base.root,
            problems=[f"{k}: in the {name}" for name, keys in sides for k in list(keys)[:3]],
            remedy="convert the base first; remap audit BASE --against MODEL names the pack",
        )
    same_spec = [k for k, e in there.items() if e.spec == base.entries[k].spec]
    if any(base.entries[k].location is None for k in same_spec):
        raise UsageError("what was trained is found by values, and a key list has none", where=base.root)
    mine = digests({k: Take(there[k]) for k in same_spec})
    its = digests({k: Take(base.entries[k]) for k in same_spec})
    same = {k for k in same_spec if mine[k] == its[k]}
    return tuple(k for k in model if k not in same)
