"""The target as a tree of modules: how much of each is loaded, and what is wrong in it.

Layers that are alike are one node: ``layers.{0..23}``.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from remap.audits.finding import Judged, Level
from remap.audits.report import LOADED, Report

REMARKS = frozenset({"unverified-layout", "collision", "no-rule", "adapter-pair"})
"""Categories that come on top of a key's own."""
DEEPEST = 40
"""Levels of the tree: a key may have a thousand dots."""
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
    nodes: dict[str, tuple[Node, Node]] = {}
    for j in report.judged:
        if j.finding.key:
            leaf = _at(nodes, root, j.finding.key)
            if j.finding.category in REMARKS:
                leaf.remarks.append(j)
            else:
                leaf.judged = j
    for node, above in reversed(nodes.values()):  # what is below before what is above
        if node.judged is not None:
            _count(node, node.judged)
        for remark in node.remarks:
            _raise(node, remark.level)
        _add(above, node)
    return root


def _at(nodes: dict[str, tuple[Node, Node]], root: Node, path: str) -> Node:
    """The node at a path; it is made with those above it, where there is none. ``nodes`` has each with the
    one above it. What lies deeper than ``DEEPEST`` is one name."""
    wanted: list[tuple[str, str]] = []
    at = path
    if path.count(".") > DEEPEST and path not in nodes:
        *above, name = path.split(".", DEEPEST)
        at = ".".join(above)
        wanted.append((path, name))
    while at not in nodes:
        parent, dot, name = at.rpartition(".")
        wanted.append((at, name))
        if not dot:
            break
        at = parent
    node = nodes[at][0] if at in nodes else root
    for where, name in reversed(wanted):
        node.children[name] = child = Node(name, where)
        nodes[where] = child, node
        node = child
    return node


def _add(above: Node, node: Node) -> None:
    above.keys += node.keys
    above.loaded += node.loaded
    above.elements += node.elements
    above.loaded_elements += node.loaded_elements
    above.extra += node.extra
    _raise(above, node.level)
    for category, count in node.categories.items():
        above.categories[category] = above.categories.get(category, 0) + count


def _count(node: Node, judged: Judged) -> None:
    f = judged.finding
    node.categories[f.category] = node.categories.get(f.category, 0) + 1
    _raise(node, judged.level)
    if f.expected is None:
        node.extra += 1
        return
    size = f.expected.numel
    node.keys += 1
    node.elements += size
    if f.category in LOADED:
        node.loaded += 1
        node.loaded_elements += size


def _raise(node: Node, level: Level) -> None:
    if _RANK[level] > _RANK[node.level]:
        node.level = level


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
