"""The target as a tree of modules: how much of each is loaded, and what is wrong in it.

Layers that are alike are one node: ``layers.{0..23}``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from remap.audits.finding import Judged, Level
from remap.audits.report import LOADED, Report

REMARKS = frozenset({"unverified-layout", "collision", "no-rule", "adapter-pair"})
"""Categories that come on top of a key's own."""
_RANK: dict[Level, int] = {"allow": 0, "warn": 1, "fail": 2}


@dataclass
class Node:
    """A module, or a key where it has no children.

    keys, loaded           how many of the target's tensors are below it, and how many of them are loaded
    elements, loaded_elements  the same by elements
    extra                  keys of the source below it that the target does not have
    """

    name: str
    path: str
    children: dict[str, Node] = field(default_factory=dict)
    judged: Judged | None = None
    remarks: list[Judged] = field(default_factory=list)
    keys: int = 0
    loaded: int = 0
    elements: int = 0
    loaded_elements: int = 0
    extra: int = 0
    level: Level = "allow"
    categories: dict[str, int] = field(default_factory=dict)

    @property
    def share(self) -> float:
        """Loaded elements of all; keys where shapes are not known."""
        if self.elements:
            return self.loaded_elements / self.elements
        return self.loaded / self.keys if self.keys else 0.0


def build(report: Report) -> Node:
    """The tree of the report's keys, in their order."""
    root = Node("", "")
    for j in report.judged:
        if not j.finding.key:
            continue
        nodes = list(_walk(root, j.finding.key))
        leaf = nodes[-1]
        if j.finding.category in REMARKS:
            leaf.remarks.append(j)
        else:
            leaf.judged = j
            _count(nodes, j)
        for node in nodes:
            if _RANK[j.level] > _RANK[node.level]:
                node.level = j.level
    return root


def _walk(root: Node, key: str) -> Iterator[Node]:
    node, path = root, ""
    yield root
    for segment in key.split("."):
        path = f"{path}.{segment}" if path else segment
        node = node.children.setdefault(segment, Node(segment, path))
        yield node


def _count(nodes: list[Node], judged: Judged) -> None:
    f = judged.finding
    size = f.expected.numel if f.expected else 0
    for node in nodes:
        node.categories[f.category] = node.categories.get(f.category, 0) + 1
        if f.expected is None:
            node.extra += 1
            continue
        node.keys += 1
        node.elements += size
        if f.category in LOADED:
            node.loaded += 1
            node.loaded_elements += size


def collapsed(node: Node) -> list[tuple[str, list[Node]]]:
    """The children, runs of numbered ones that look alike together: (name, nodes)."""
    found: list[tuple[str, list[Node]]] = []
    for child in node.children.values():
        last = found[-1][1] if found else []
        if last and child.name.isdigit() and last[-1].name.isdigit() and _alike(last[-1], child):
            last.append(child)
        else:
            found.append((child.name, [child]))
    return [(_span(nodes), nodes) for _, nodes in found]


def _alike(a: Node, b: Node) -> bool:
    same = (a.keys, a.loaded, a.extra, a.level, a.children.keys()) == (
        b.keys,
        b.loaded,
        b.extra,
        b.level,
        b.children.keys(),
    )
    return same and a.categories == b.categories


def _span(nodes: list[Node]) -> str:
    return nodes[0].name if len(nodes) == 1 else f"{{{nodes[0].name}..{nodes[-1].name}}}"
