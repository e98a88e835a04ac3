"""The tree of modules as the page's script reads it: layers that are alike are written once.

A model of tens of thousands of tensors has a few dozen kinds. A run of numbered modules whose contents
differ in nothing but these numbers is one node, and the script unfolds it. So that they do differ in nothing
else, numbers in a text that follow those of the path are written as what they follow: of ``layers.3.w``,
loaded into ``5.w``, the source is ``["layers.", [0, -2], ".w"]``: the path's first number, less two.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from remap.reports.parts.groups import specs
from remap.reports.parts.tree import Node

_NUMBER = re.compile(r"((?<![0-9A-Za-z_])(?:0|[1-9][0-9]{0,8})(?![0-9A-Za-z_]))")

Text = str | list[str | list[int]]
"""A text, or its pieces: each is text, or the number of a numbered segment of the path and what to add."""


def packed(root: Node) -> dict[str, Any]:
    """The tree, short names, since there may be many.

    n name, or first and last of a run of numbers; k, l keys and loaded ones; e, m the same by elements; x
    keys of the source alone; w the worst level; g categories; c children. Of a tensor: f category, t specs, v
    level, p is it the target's, s the source's keys (1 for the same one), d what is said of it. Counts are
    those of one member of a run.
    """
    return {"n": root.name, **_contents(root, ())}


def _contents(node: Node, numbers: tuple[int, ...]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if node.keys:
        found |= {"k": node.keys, "l": node.loaded, "e": node.elements, "m": node.loaded_elements}
    if node.extra:
        found["x"] = node.extra
    if node.level != "allow":
        found["w"] = node.level
    if node.children:
        found["g"] = node.categories
        found["c"] = _runs(node, numbers)
    if node.judged is not None:
        found |= _leaf(node, numbers)
    return found


def _runs(node: Node, numbers: tuple[int, ...]) -> list[dict[str, Any]]:
    """The children; of numbers in a row those that are alike are one."""
    found: list[dict[str, Any]] = []
    last: dict[str, Any] | None = None
    for child in node.children.values():
        number = int(child.name) if _NUMBER.fullmatch(child.name) else None
        contents = _contents(child, numbers if number is None else (*numbers, number))
        if number is None:
            last = None
            found.append({"n": child.name, **contents})
        elif last == contents and found[-1]["n"][1] == number - 1:
            found[-1]["n"][1] = number
        else:
            last = contents
            found.append({"n": [number, number], **contents})
    return found


def _leaf(node: Node, numbers: tuple[int, ...]) -> dict[str, Any]:
    assert node.judged is not None
    f = node.judged.finding
    found: dict[str, Any] = {"f": f.category, "t": specs(f), "v": node.judged.level}
    if f.expected is not None:
        found["p"] = 1
    if f.source:
        found["s"] = 1 if f.source == (node.path,) else [_key(s, numbers) for s in f.source]
    said = [f.detail, *(f"{r.finding.category}: {r.finding.detail}" for r in node.remarks)]
    if any(said):
        found["d"] = _text("; ".join(filter(None, said)), numbers)
    return found


def _key(key: str, numbers: Sequence[int]) -> Text:
    """A key whose n-th number follows the path's n-th, where it has as many."""
    pieces = _NUMBER.split(key)
    if len(pieces) // 2 != len(numbers):
        return _text(key, numbers)
    return _joined([p if n % 2 == 0 else [n // 2, int(p) - numbers[n // 2]] for n, p in enumerate(pieces)])


def _text(text: str, numbers: Sequence[int]) -> Text:
    """A text whose numbers are the path's, in their order, where they are equal."""
    if not numbers:
        return text
    found: list[str | list[int]] = []
    turn = 0
    for n, piece in enumerate(_NUMBER.split(text)):
        if n % 2 == 0 or int(piece) not in numbers:
            found.append(piece)
            continue
        if turn == len(numbers) or numbers[turn] != int(piece):
            turn = numbers.index(int(piece))
        found.append([turn, 0])
        turn += 1
    return _joined(found)


def _joined(pieces: Sequence[str | list[int]]) -> Text:
    """The pieces with neighbouring texts as one; the text where there is nothing else."""
    found: list[str | list[int]] = []
    for piece in pieces:
        if isinstance(piece, str) and found and isinstance(found[-1], str):
            found[-1] += piece
        elif piece:
            found.append(piece)
    return found if any(not isinstance(p, str) for p in found) else "".join(map(str, found))
