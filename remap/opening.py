"""A path, or what was opened already -> the catalog of one model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import remap.parallel as parallel
import remap.receipt as receipts
from remap.checkpoint import Checkpoint
from remap.files import locate
from remap.formats import registry
from remap.parallel import AS_FOUND, Settings
from remap.receipt import Receipt
from remap.types import Catalog

Source = str | Path | Catalog | Checkpoint
"""A path (a file of a checkpoint, or its folder), or what came of opening one."""


def catalog(
    source: Source,
    *,
    at: str | None = None,
    settings: Settings = AS_FOUND,
    params: Mapping[str, str] | None = None,
) -> Catalog:
    """What is known of a checkpoint without its data; reads headers only, runs nothing, imports no torch.

    Tensor-parallel ranks are merged, as ``settings`` and the ``params`` of a layout say.
    """
    return opened(source, at=at, settings=settings, params=params)[0]


def opened(
    source: Source, *, at: str | None, settings: Settings, params: Mapping[str, str] | None
) -> tuple[Catalog, Settings, Receipt | None]:
    """The catalog, the settings with what the user and the source's receipt say of layouts' parameters, and
    that receipt."""
    found = unmerged(source, at, settings)
    left = receipts.find(found)
    settings = told(settings, params, left)
    return parallel.whole(found, settings), settings, left


def unmerged(source: Source, at: str | None, settings: Settings = AS_FOUND) -> Catalog:
    """The catalog as the files lie: tensor-parallel ranks side by side. What a format merges by itself is
    merged as ``settings`` say."""
    if isinstance(source, Checkpoint):
        return source.catalog
    if isinstance(source, Catalog):
        return source
    return registry.open_catalog(locate(source), at=at, options=settings.reading)


def told(settings: Settings, params: Mapping[str, str] | None, left: Receipt | None) -> Settings:
    """With what the user and the source's receipt say of layouts' parameters."""
    remembered = left.parallel.params if left and left.parallel else {}
    return replace(settings, params=params or {}, remembered=remembered)
