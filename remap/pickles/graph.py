"""Reads a graph of nodes: mappings and their pairs, a value at a path, plain Python values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from remap.pickles.nodes import ByteString, Call, Dict, Global, List, Pairs, Persistent, Set, Text, Value
from remap.pickles.tensors import is_tensor_call

_MAPPINGS = frozenset(
    {
        ("collections", "OrderedDict"),
        ("collections", "defaultdict"),
        ("builtins", "dict"),
        ("__builtin__", "dict"),
    }
)


@dataclass(frozen=True, slots=True)
class Opaque:
    """Stands in a plain value for what is carried along unopened: a tensor, an object, a class."""

    name: str


def mapping_pairs(node: Value) -> Pairs | None:
    """The pairs of a dict, OrderedDict or defaultdict in order; None for anything else."""
    if type(node) is Dict:
        return node.pairs
    if type(node) is not Call or type(node.function) is not Global:
        return None
    if (node.function.module, node.function.name) not in _MAPPINGS:
        return None
    pairs: Pairs = []
    if (
        node.is_a("collections", "OrderedDict") and len(node.args) == 1
    ):  # Python 2: OrderedDict([[k, v], ...])
        listed = items_of(node.args[0])
        for item in listed or ():
            pair = items_of(item)
            if pair is None or len(pair) != 2:
                return None
            pairs.append((pair[0], pair[1]))
    for what, values in node.steps or ():
        if what == "set":
            pairs.extend(zip(values[::2], values[1::2], strict=True))
    return pairs


def items_of(node: Value) -> Sequence[Value] | None:
    """The items of a list or tuple; None for anything else."""
    if isinstance(node, tuple):
        return node
    return node.items if type(node) is List else None


def attributes(node: Value) -> Pairs:
    """The instance attributes that BUILD sets: an OrderedDict's ``_metadata`` is one."""
    pairs: Pairs = []
    if type(node) is Call:
        for what, values in node.steps or ():
            if what != "build":
                continue
            for state in values[0] if isinstance(values[0], tuple) else values:
                if type(state) is Dict:  # a class with slots has (attributes, slots)
                    pairs.extend(state.pairs)
    return pairs


def key_of(node: Value) -> str | int | None:
    """A dict key as Python has it, where it is text or an integer."""
    if type(node) is Text:
        return node.text
    return node if type(node) is int else None


def lookup(node: Value, name: str | int) -> tuple[bool, Value]:
    """(found, value) for one key of a mapping, or one index of a list. The last pair wins, as in Python."""
    pairs = mapping_pairs(node)
    if pairs is not None:
        for key, value in reversed(pairs):
            if key_of(key) == name:
                return True, value
    items = items_of(node)
    if items is not None and isinstance(name, int) and -len(items) <= name < len(items):
        return True, items[name]
    return False, None


def plain(node: Value) -> object:
    """The Python value of a node: None, bool, int, float, str, bytes, list, tuple, dict.

    Whatever else there is, at any depth, becomes an Opaque. ``torch.Size`` becomes a tuple. The
    graph has no cycles and a bounded number of paths: ``survey`` has seen to that.
    """
    if isinstance(node, tuple):
        return tuple(map(plain, node))
    if type(node) is Text:
        return node.text
    if type(node) is List:
        return list(map(plain, node.items))
    pairs = mapping_pairs(node)
    if pairs is not None:
        return {_plain_key(k): plain(v) for k, v in pairs}
    if type(node) is Call:
        if node.is_a("torch", "Size") and len(node.args) == 1:
            return plain(node.args[0])
        return Opaque("tensor" if is_tensor_call(node) else node.name)
    if isinstance(node, (Global, Persistent, Set, ByteString)):
        return Opaque(node.path if isinstance(node, Global) else type(node).__name__.lower())
    return node


def _plain_key(key: Value) -> object:
    value = plain(key)
    try:
        hash(value)
    except TypeError:
        return Opaque("key")
    return value
