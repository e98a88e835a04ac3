"""Which layout a checkpoint has, and the class that it gives every key."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from remap.errors import InputError
from remap.packs import Layout, load_layout, recognised
from remap.packs.division import Divided, divide
from remap.parallel.settings import Settings
from remap.partitions.base import Partition
from remap.types import Catalog, Entry

UNKNOWN = "whether ranks hold pieces or copies of them can't be told"


def find_layout(keys: Iterable[str], settings: Settings, where: object = None) -> Layout:
    """The layout that is named, or the one that knows all the keys. Raises InputError for none or several."""
    if settings.layout is not None:
        return load_layout(settings.layout)
    found = recognised(keys)
    if len(found) == 1:
        return found[0]
    if found:
        raise InputError(
            "the keys are those of several layouts",
            where=where,
            problems=[layout.name for layout in found],
            remedy=f"say which: --layout {found[0].name}",
        )
    raise InputError(
        f"no layout knows these keys: {UNKNOWN}",
        where=where,
        problems=list(keys)[:10],
        remedy="write one that says how each is divided, and name it: --layout FILE.layout.yaml",
    )


def only_layout(keys: Iterable[str], settings: Settings) -> Layout | None:
    """The layout that is named, or the one that knows all the keys; None for none or several."""
    if settings.layout is not None:
        return load_layout(settings.layout)
    found = recognised(keys)
    return found[0] if len(found) == 1 else None


def spoken_of(catalog: Catalog, settings: Settings) -> frozenset[str]:
    """Parameters of the layout that a catalog of one rank has, where the user names some of them."""
    layout = only_layout(catalog.entries, settings) if settings.params else None
    return frozenset(layout.params if layout else ())


def classes(
    layout: Layout,
    tables: Sequence[Mapping[str, Entry]],
    config: Mapping[str, object],
    settings: Settings,
) -> Divided:
    """The class of every key by a layout. Raises InputError naming the keys that it does not know."""
    specs = [{k: e.spec for k, e in t.items()} for t in tables]
    divided = divide(layout, specs, settings.given(layout, config))
    unknown = [f"{k}: {s}" for k, s in specs[0].items() if k not in divided.classes]
    if unknown:
        raise InputError(
            f"{len(unknown)} tensors are no keys of {layout.name}: {UNKNOWN}",
            problems=unknown,
            remedy="name the layout that has them: --layout family/name, or a file",
        )
    return divided


def classes_of(layout: Layout, catalog: Catalog, settings: Settings) -> Mapping[str, Partition]:
    """The class of every key of one rank that a layout knows."""
    specs = {k: e.spec for k, e in catalog.entries.items()}
    return divide(layout, [specs], settings.given(layout, catalog.config)).classes


def known(catalog: Catalog, settings: Settings) -> Catalog:
    """A catalog of one rank with the classes that a layout gives its keys, where one knows them all."""
    found = recognised(catalog.entries) if not catalog.ranks else []
    if len(found) != 1:
        return catalog
    return replace(catalog, partitions=classes_of(found[0], catalog, settings))
