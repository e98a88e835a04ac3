"""What has partition classes ride on the rules of packs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from remap.packs import Pack, available_layouts, load_layout, recognised
from remap.packs.division import divide
from remap.parallel.settings import Settings
from remap.partitions.base import Partition
from remap.types import Catalog, TensorSpec


@dataclass(frozen=True)
class Rider:
    """What has classes ride through a plan.

    params  names of the layouts' parameters
    """

    catalog: Catalog
    settings: Settings
    params: frozenset[str]

    def classes(self, layout: str, specs: Mapping[str, TensorSpec]) -> Mapping[str, Partition]:
        """What a layout says of the keys that it knows."""
        found = load_layout(layout)
        return divide(found, [specs], self.settings.given(found, self.catalog.config)).classes


def rider(catalog: Catalog, packs: Sequence[Pack], settings: Settings) -> Rider:
    """What makes classes ride through ``packs``."""
    layouts = [load_layout(n) for n in layouts_of(packs)]
    if settings.layout is not None:
        layouts.append(load_layout(settings.layout))
    else:
        mine = recognised(catalog.ranks[0] if catalog.ranks else catalog.entries)
        layouts += mine or map(load_layout, available_layouts())  # what is wrong is told where it matters
    return Rider(catalog, settings, frozenset(n for layout in layouts for n in layout.params))


def layouts_of(packs: Iterable[Pack]) -> list[str]:
    """The names of the layouts that packs lead from and to."""
    found = [n for p in packs for n in (p.source_layout, p.target_layout, *layouts_of(p.used)) if n]
    return list(dict.fromkeys(found))
