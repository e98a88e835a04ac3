"""The base that an adapter was made on: the keys that rule packs are applied to."""

from __future__ import annotations

from dataclasses import dataclass

from remap.adapters.model import Adapter
from remap.adapters.placing.explain import explained
from remap.adapters.placing.places import places
from remap.dtypes import dtype
from remap.errors import UsageError
from remap.types import Catalog, Entry, TensorSpec


@dataclass(frozen=True)
class Base:
    """What is known of the base.

    catalog  its keys; without locations where they come from the adapter
    whole    all of its keys are there
    """

    catalog: Catalog
    whole: bool


def base_of(adapter: Adapter, given: Catalog | None) -> Base:
    """The base that was given, which must have the adapter's modules, or what the adapter tells of it.

    Raises UsageError naming every module that the base hasn't.
    """
    told = {p.key: p.spec if p.exact else None for p in places(adapter, given)}
    if given is None:
        unknown = TensorSpec(dtype("float32"), (1, 1))
        entries = {p.key: Entry(p.key, p.spec or unknown) for p in places(adapter)}
        catalog = Catalog("adapter", adapter.catalog.root, (), entries, config=adapter.catalog.config)
        return Base(catalog, whole=False)
    missing = [k for k in told if k not in given.entries]
    if missing:
        raise explained(adapter, given, told)
    odd = [
        f"{k}: the adapter changes {list(s.shape)}, the base has {list(given.entries[k].spec.shape)}"
        for k, s in told.items()
        if s is not None and s.shape != given.entries[k].spec.shape
    ]
    if odd:
        raise UsageError(
            "the adapter was made on a base of other sizes",
            where=given.root,
            problems=odd,
            remedy="give its base",
        )
    return Base(given, whole=True)
