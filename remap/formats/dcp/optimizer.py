"""The optimizer's state in a DCP folder, weight by weight: read for other formats, laid out from theirs.

Where it lies is what torch's ``get_state_dict`` makes of it, nested or flattened (see ``follow``):

    optim.state.{weight}.{slot}, optim.param_groups.{i}.{setting}; params lists weights
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from remap.expr import Expr, is_expr
from remap.formats.dcp.items import Items
from remap.formats.dcp.metadata import Path_
from remap.formats.dcp.reader import Folder, locate
from remap.formats.follow import PARAMS, Followed
from remap.formats.torch.by_weight import OPTIMIZER
from remap.formats.torch.locate import dotted
from remap.types import Entry, OptimizerState

MODEL, STATE, GROUPS = "model", "state", "param_groups"
"""The names that torch's documentation uses, and torchtitan, and those that its code has."""


def is_optimizer(path: Path_) -> bool:
    """True for what lies in an optimizer's state."""
    return str(path[0]).startswith(OPTIMIZER)


@dataclass
class Beside:
    """What is to be written beside the model.

    name     what its source called it
    tensors  flat name -> tensor
    objects  flat name -> plain value
    paths    flat name -> path
    """

    name: str
    tensors: dict[str, Expr] = field(default_factory=dict)
    objects: dict[str, object] = field(default_factory=dict)
    paths: dict[str, Path_] = field(default_factory=dict)

    def add(self, path: Path_, value: object) -> None:
        """A tensor, or a plain value."""
        name = dotted(path)
        self.paths[name] = path
        if is_expr(value):
            self.tensors[name] = value
        else:
            self.objects[name] = value


def nested(state: Followed) -> Beside:
    """As torch's ``get_state_dict`` has it."""
    out = Beside(state.name)
    for key in state.keys:
        for slot, value in state.slots(key).items():
            out.add((OPTIMIZER, STATE, key, slot), value)
    for number, group in enumerate(state.groups):
        for name, value in group.items():
            out.add((OPTIMIZER, GROUPS, number, name), value)
    for name, value in state.rest.items():
        out.add((OPTIMIZER, name), value)
    return out


def read_optimizer(folder: Folder) -> OptimizerState | None:
    """The state in a folder, None where there is none, or more than one optimizer's."""
    metadata = folder.metadata
    mine = {n: p for n, p in metadata.paths.items() if is_optimizer(p) and len(p) > 1}
    roots = {p[0] for p in mine.values()}
    if len(roots) != 1 or set(folder.selection.names.values()) & mine.keys():
        return None
    tensors: dict[str, dict[str, Entry]] = {}
    values: dict[str, dict[str, object]] = {}
    groups: dict[str | int, dict[str, object]] = {}
    rest: dict[str, object] = {}
    with Items(folder.path) as items:
        for name, path in mine.items():
            kind, owner, slot = _place(path)
            if name in metadata.tensors:
                found = locate(folder.path, name, metadata.tensors[name], items)
                if kind == STATE:
                    tensors.setdefault(str(owner), {})[slot] = Entry(name, *found)
                continue
            value = items.value(metadata.objects[name], name)
            if kind == GROUPS:
                groups.setdefault(owner, {})[slot] = value
            elif kind == STATE:
                values.setdefault(str(owner), {})[slot] = value
            else:
                rest[slot] = value
    return OptimizerState(str(roots.pop()), tensors, values, _groups(groups), rest)


def _place(path: Path_) -> tuple[str, str | int, str]:
    """(``state`` or ``param_groups``, the weight or the group's number, slot); ("", "", name) of the rest."""
    if len(path) == 4 and path[1] in (STATE, GROUPS):
        return str(path[1]), path[2], str(path[3])
    kind, _, rest = str(path[1]).partition(".")
    owner, _, slot = rest.rpartition(".")
    if len(path) == 2 and kind in (STATE, GROUPS) and owner:
        return kind, owner, slot
    return "", "", dotted(path[1:])


def _groups(groups: Mapping[str | int, Mapping[str, object]]) -> list[dict[str, object]]:
    """By number, as they are; by weight (the flattened form), those of equal settings together."""
    if all(isinstance(g, int) for g in groups):
        return [{**groups[g], PARAMS: groups[g].get(PARAMS, [])} for g in sorted(groups, key=int)]
    together: list[dict[str, object]] = []
    for weight, settings in groups.items():
        same = [g for g in together if {k: v for k, v in g.items() if k != PARAMS} == settings]
        if same:
            same[0][PARAMS] = [*same[0][PARAMS], weight]  # type: ignore[misc]
        else:
            together.append({**settings, PARAMS: [weight]})
    return together
