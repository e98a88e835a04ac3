"""Builds nodes for plain Python values, so that ``emit`` can write them."""

from __future__ import annotations

from collections.abc import Mapping

from remap.errors import UsageError
from remap.pickles.emit import NewTensor
from remap.pickles.nodes import Call, Dict, Global, List, Text, Value


def node_of(value: object) -> Value:
    """The node of a plain value: None, bool, int, float, str, list, tuple, dict; nodes in them stay.

    Raises UsageError for anything else.
    """
    if isinstance(value, str):
        return Text(value)
    if isinstance(value, list):
        return List([node_of(v) for v in value])
    if isinstance(value, tuple):
        return tuple(map(node_of, value))
    if isinstance(value, Mapping):
        return Dict([(node_of(k), node_of(v)) for k, v in value.items()])
    if value is None or isinstance(value, (bool, int, float, Dict, List, Text, Call, NewTensor)):
        return value
    raise UsageError(f"a {type(value).__name__} can't be written into a torch file")


def ordered_dict(pairs: Mapping[str, Value]) -> Call:
    """``OrderedDict`` of text keys and nodes: what ``Module.state_dict`` gives."""
    items = [x for key, value in pairs.items() for x in (Text(key), value)]
    return Call("reduce", Global("collections", "OrderedDict"), (), [("set", items)] if items else None)
