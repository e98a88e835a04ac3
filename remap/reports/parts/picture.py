"""Coverage by module as a picture: an icicle in SVG.

Each row is one level of the tree; a module is as wide as its share of the model's elements. The part of it
that is loaded is green, the rest has the colour of the category that most of it is in.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from remap.audits.report import LOADED
from remap.reports.parts.tree import Node

WIDTH = 1000.0
HEIGHT = 26
GAP = 2
ROWS = 4
GRAVE = frozenset(
    {"missing-parameter", "partial-adapter", "missing-stage", "shape-mismatch", "placeholder", "dtype-kind"}
)
"""Where one of these is among them, it has the colour."""
NARROW = 1.5
"""Modules that are narrower are not drawn."""
MARGIN = 4
LETTER = 7.4
"""Width of a letter, to know whether a name fits."""


@dataclass(frozen=True)
class Box:
    """A module: place and size in the picture's units, the width that is loaded, name and title.

    missing  the category that most of what is not loaded has
    """

    x: float
    y: float
    width: float
    loaded: float
    name: str
    title: str
    missing: str


def boxes(root: Node) -> list[Box]:
    """The boxes of all rows, from the top."""
    return list(_row(root, 0.0, WIDTH, 0))


def height(found: list[Box]) -> int:
    """The picture's height."""
    return int(max((b.y for b in found), default=0.0)) + HEIGHT


def _row(node: Node, left: float, width: float, depth: int) -> Iterator[Box]:
    total = _size(node)
    if depth >= ROWS or not total:
        return
    for child in node.children.values():
        share = width * _size(child) / total
        if share >= NARROW:
            inner = max(share - GAP, 0.5)
            fits = len(child.name) * LETTER + 2 * MARGIN < inner
            title = (
                f"{child.path}: {child.loaded:,} of {child.keys:,} keys, {child.share:.1%} of the elements"
            )
            y = depth * (HEIGHT + GAP)
            yield Box(left, y, inner, inner * child.share, child.name if fits else "", title, _missing(child))
            yield from _row(child, left, share, depth + 1)
        left += share


def _missing(node: Node) -> str:
    gone = {c: n for c, n in node.categories.items() if c not in LOADED and not c.startswith("unexpected-")}
    grave = {c: n for c, n in gone.items() if c in GRAVE} or gone
    return max(grave, key=lambda c: grave[c]) if grave else ""


def _size(node: Node) -> int:
    return node.elements or node.keys
