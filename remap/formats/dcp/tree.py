"""Which of a DCP folder's tensors are the model: the nested state dict is rebuilt from the paths.

DCP flattens a nested state dict to names joined by dots and notes the path of each. The tree of
those paths is made of the nodes that a torch file's pickle would have, so that the model is found
in it, and named with ``--at``, as in a torch file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from remap.formats.dcp.metadata import Metadata, Path_
from remap.formats.torch.locate import beside, dotted, locate, resolve
from remap.pickles.nodes import Dict, List, Text, Value
from remap.pickles.survey import Survey
from remap.pickles.tensors import TensorRef

_TENSOR = TensorRef(None, 0, (), (), None)


@dataclass(frozen=True)
class Selection:
    """The tensors that were asked for.

    at       where they lie, as a path; () for the root
    names    key -> flat name, in the order of the folder
    extras   what else there is, by dotted path
    """

    at: tuple[str | int, ...]
    names: Mapping[str, str]
    extras: tuple[str, ...]


def select(metadata: Metadata, at: str | None, folder: Path) -> Selection:
    """The tensors at ``at``, all that lie below it; without it the model's, which are found as in a
    torch file: those right below the one place that can be meant.

    Raises UsageError where ``at`` is wrong or needed, NotACheckpoint where there is no model.
    """
    root, survey = _tree(metadata)
    if at is None:
        place = locate(root, survey, folder, required=True)
        assert place is not None
        inside = {n: p for n, p in metadata.paths.items() if p[:-1] == place}
    else:
        place = resolve(root, at, folder)
        inside = {n: p for n, p in metadata.paths.items() if p[: len(place)] == place}
    names = {dotted(p[len(place) :]) or str(p[-1]): n for n, p in inside.items() if n in metadata.tensors}
    if at is None:
        return Selection(place, names, tuple(beside(root, place, survey)))
    chosen = set(names.values())
    rest = (dotted(p[: len(place) + 2]) for n, p in metadata.paths.items() if n not in chosen)
    return Selection(place, names, tuple(dict.fromkeys(rest)))


def _tree(metadata: Metadata) -> tuple[Value, Survey]:
    """Nested dicts with a node for every tensor and object, and which of those are tensors."""
    survey = Survey()
    root = Dict()
    dicts: dict[Path_, Dict] = {(): root}
    for name, path in metadata.paths.items():
        for depth in range(1, len(path)):
            if path[:depth] not in dicts:
                made = dicts[path[:depth]] = Dict()
                dicts[path[: depth - 1]].pairs.append((_key(path[depth - 1]), made))
        leaf = List()
        if name in metadata.tensors:
            survey.tensors[id(leaf)] = _TENSOR
        dicts[path[:-1]].pairs.append((_key(path[-1]), leaf))
    return root, survey


def _key(part: str | int) -> Value:
    return Text(part) if isinstance(part, str) else part
