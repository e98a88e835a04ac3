"""Layers of which one side has everything and the other nothing, at an end: pipeline stages, or fewer
layers."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator

from remap.audits.names.masks import alike

_LAYER = re.compile(r"(.*?)(?<![^.])(\d+)\.")


def whole_layers(
    keys: Iterable[str], everything: Collection[str], alone: Collection[str], other: str
) -> Iterator[tuple[str, str]]:
    """(key, detail) for those of ``keys`` whose layer is entirely in ``alone``, where the layers that
    aren't are one run of numbers and the key's lies outside of it. ``other`` names the side that lacks
    them."""
    waiting = list(_layers(keys)) if len(alone) < len(everything) else []
    if not waiting:
        return
    common: dict[str, set[int]] = {}
    for _, place, layer in _layers(k for k in everything if k not in alone):
        common.setdefault(place, set()).add(layer)
    for key, place, layer in waiting:
        have = common.get(place)
        if not have:
            continue
        low, high = min(have), max(have)
        if len(have) == high - low + 1 and not low <= layer <= high:
            span = f"layer {low}" if low == high else f"layers {low} to {high}"
            where = f" of {place.rstrip('.')}" if place else ""
            yield key, f"{other} has {span}{where}, not {layer}"


def _layers(keys: Iterable[str]) -> Iterator[tuple[str, str, int]]:
    """(key, where its layers are counted, its layer), of the keys that have one."""
    for several in alike(keys):
        found = _LAYER.match(several[0])
        if found:
            start, end = found.span(2)
            yield from ((k, k[:start], int(k[start:end])) for k in several)
