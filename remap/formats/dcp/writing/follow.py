"""The optimizer's state follows its weights: where they get other names, it gets them, too.

DCP knows state by the weight's name, in one of two ways. Source: torch
``distributed/checkpoint/state_dict.py`` (``_get_optim_state_dict``, ``_flatten_optim_state_dict``):

    ("optim", "state", "embed.weight", "exp_avg")       nested; and param_groups[i]["params"], a list of names
    ("optim", "state.embed.weight.exp_avg")             flattened; and "param_groups.embed.weight.lr"
"""

from __future__ import annotations

from collections.abc import Mapping

from remap.errors import UsageError
from remap.expr import Cast, Expr, Take
from remap.formats.dcp.metadata import Path_

_FLAT = ("state.", "param_groups.")


class Follow:
    """What became of the source's keys: ``moved`` old -> new; ``gone`` are not there as they were."""

    def __init__(self, keys: Mapping[str, object], tensors: Mapping[str, Expr]) -> None:
        new = {e.entry.key: key for key, expr in tensors.items() if isinstance(e := _uncast(expr), Take)}
        self.moved = {old: name for old, name in new.items() if old != name}
        self.gone = frozenset(k for k in keys if k not in new)
        self._stuck: set[str] = set()

    def path(self, path: Path_) -> Path_:
        """The path of an item beside the model, under the new name where it is a weight's state."""
        return tuple(
            self._part(path[i - 1] if i else None, part) if isinstance(part, str) else part
            for i, part in enumerate(path)
        )

    def _part(self, before: str | int | None, part: str) -> str:
        if before == "state":
            return self._name(part)
        for prefix in _FLAT:
            name, dot, slot = part.removeprefix(prefix).rpartition(".")
            if part.startswith(prefix) and dot:
                return f"{prefix}{self._name(name)}.{slot}"
        return part

    def _name(self, name: str) -> str:
        if name in self.gone:
            self._stuck.add(name)
        return self.moved.get(name, name)

    def lists(self, path: Path_) -> bool:
        """True where an item lists the weights of a parameter group, and names have changed."""
        return bool(self.moved or self.gone) and path[-1] == "params" and "param_groups" in path

    def names(self, value: object) -> object:
        """The list under the new names."""
        return (
            [self._name(v) if isinstance(v, str) else v for v in value] if isinstance(value, list) else value
        )

    def check(self) -> None:
        """Raise UsageError where state was met whose weight is dropped, joined, cut or computed."""
        if self._stuck:
            raise UsageError(
                "the optimizer's state of these weights can't follow: the output has them not as they were",
                problems=sorted(self._stuck),
                remedy="leave the optimizer behind with --no-optimizer",
            )


def _uncast(expr: Expr) -> Expr:
    """A weight in another element type has the same state."""
    while isinstance(expr, Cast):
        expr = expr.of
    return expr
