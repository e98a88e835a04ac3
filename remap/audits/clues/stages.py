"""Layers of which one side has everything and the other nothing, at an end: pipeline stages, or fewer
layers."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator

_LAYER = re.compile(r"(.*?)(?<![^.])(\d+)\.")


def whole_layers(
    keys: Iterable[str], everything: Iterable[str], alone: Collection[str], other: str
) -> Iterator[tuple[str, str]]:
    """(key, detail) for those of ``keys`` whose layer is entirely in ``alone``, where the layers that
    aren't are one run of numbers and the key's lies outside of it. ``other`` names the side that lacks
    them."""
    waiting = [(k, m) for k in keys if (m := _LAYER.match(k))]
    if not waiting:
        return
    common: dict[str, set[int]] = {}
    for key in everything:
        found = _LAYER.match(key)
        if found and key not in alone:
            common.setdefault(found[1], set()).add(int(found[2]))
    for key, found in waiting:
        have = common.get(found[1])
        if not have:
            continue
        low, high = min(have), max(have)
        layer = int(found[2])
        if len(have) == high - low + 1 and not low <= layer <= high:
            span = f"layer {low}" if low == high else f"layers {low} to {high}"
            where = f" of {found[1].rstrip('.')}" if found[1] else ""
            yield key, f"{other} has {span}{where}, not {layer}"
