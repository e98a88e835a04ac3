"""Looks at everything that a walked pickle would build, once: tensors, storages, dangers of shape.

Refused: a dict with one key twice, containers that contain themselves, nesting deeper than
MAX_DEPTH, and sharing that would expand to more than MAX_PATHS values (40 dicts, each holding the
next twice, are a page of pickle and 2**40 paths).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from remap.errors import Damaged, Hostile
from remap.pickles.graph import mapping_pairs
from remap.pickles.machine import MISTRUST
from remap.pickles.nodes import ByteString, Call, Dict, Global, List, Persistent, Set, Text, Value
from remap.pickles.tensors import (
    REMEDY,
    StorageRef,
    TensorRef,
    is_tensor_call,
    is_wrapper,
    read_storage,
    read_tensor,
)

MAX_DEPTH = 500
"""Real files nest a dozen levels; Python itself gives up at about 1000."""

MAX_PATHS = 1 << 36

_LEAVES = frozenset({Text, Global, ByteString, int, float, bool, type(None), bytes, bytearray})


@dataclass
class Survey:
    """What a pickle holds.

    tensors   id of the tensor's call -> the tensor, in order
    storages  key -> storage
    wrappers  how many of the tensors are a Parameter around another of them
    """

    tensors: dict[int, TensorRef] = field(default_factory=dict)
    storages: dict[str, StorageRef] = field(default_factory=dict)
    wrappers: int = 0

    @property
    def count(self) -> int:
        """Number of tensors, each Parameter once."""
        return len(self.tensors) - self.wrappers


def survey(root: Value, where: str) -> Survey:
    """Look through the graph under ``root``. Raises Hostile, or Damaged for malformed tensors."""
    found = Survey()
    expanded: dict[int, int] = {}
    active: dict[int, int] = {}
    path: list[tuple[Value, Iterator[Value]]] = []
    sizes: list[int] = []

    def enter(node: Value, children: Sequence[Value]) -> None:
        if len(path) >= MAX_DEPTH:
            raise Hostile(f"objects nest deeper than {MAX_DEPTH} levels", where=where, remedy=MISTRUST)
        active[id(node)] = len(path)
        path.append((node, iter(children)))
        sizes.append(1)

    if type(root) not in _LEAVES:
        enter(root, _children(root, found, where))
    while path:
        node, children = path[-1]
        for child in children:
            if type(child) in _LEAVES:
                sizes[-1] += 1
                continue
            known = expanded.get(id(child))
            if known is not None:
                sizes[-1] += known
            elif id(child) in active:
                _check_cycle([n for n, _ in path[active[id(child)] :]], where)
            elif below := _children(child, found, where):
                enter(child, below)
                break
            else:
                sizes[-1] += 1
                expanded[id(child)] = 1
        else:
            path.pop()
            del active[id(node)]
            size = sizes.pop()
            if size > MAX_PATHS:
                raise Hostile(
                    "dicts hold each other in more ways than can be listed", where=where, remedy=MISTRUST
                )
            expanded[id(node)] = size
            if sizes:
                sizes[-1] += size
    return found


def _check_cycle(loop: list[Value], where: str) -> None:
    """Objects may refer to each other in circles; plain containers that do have no keys to speak of."""
    if not any(type(node) is Call and mapping_pairs(node) is None for node in loop):
        raise Hostile("a dict or list contains itself", where=where, remedy=MISTRUST)


def _children(node: Value, found: Survey, where: str) -> Sequence[Value]:
    """What is to be looked at below a node; notes tensors and storages on the way."""
    if isinstance(node, tuple):
        return node
    if type(node) is Call:
        return _call_children(node, found, where)
    if type(node) is Dict:
        _check_unique(node, where)
        return [part for pair in node.pairs for part in pair]
    if isinstance(node, (List, Set)):
        return node.items
    if type(node) is Persistent:
        _note_storage(read_storage(node, where), found, where)
        return []
    return []


def _call_children(node: Call, found: Survey, where: str) -> list[Value]:
    if is_tensor_call(node):
        ref = found.tensors[id(node)] = read_tensor(node, where)
        if ref.storage is not None:
            _note_storage(ref.storage, found, where)
        if ref.dtype is not None and _is_simple(node):
            return []
        found.wrappers += is_wrapper(node)
    if mapping_pairs(node) is not None:
        _check_unique(node, where)
    children: list[Value] = [node.function, *node.args]
    for _, values in node.steps or ():
        children.extend(values)
    return children


def _is_simple(node: Call) -> bool:
    """True for nearly every tensor: nothing in it but what ``read_tensor`` has looked at."""
    if node.steps or len(node.args) != 6 or type(node.args[2]) is Call:
        return False
    return type(node.args[4]) is bool and _is_empty(node.args[5])


def _is_empty(hooks: Value) -> bool:
    """True for ``OrderedDict()``, which stands where a tensor has no hooks."""
    return (
        type(hooks) is Call
        and not hooks.args
        and not hooks.steps
        and hooks.is_a("collections", "OrderedDict")
    )


def _check_unique(node: Value, where: str) -> None:
    """No text key twice: a loader keeps one, and which tensor the other was nobody can tell."""
    keys = [k.text for k, _ in mapping_pairs(node) or () if type(k) is Text]
    if len(set(keys)) == len(keys):
        return
    seen: set[str] = set()
    twice = sorted({k for k in keys if k in seen or seen.add(k)})  # type: ignore[func-returns-value]
    raise Hostile("keys are there twice", where=where, problems=[repr(k) for k in twice], remedy=MISTRUST)


def _note_storage(storage: StorageRef, found: Survey, where: str) -> None:
    first = found.storages.setdefault(storage.key, storage)
    if first is not storage and first != storage:
        raise Damaged(
            f"storage {storage.key} is {first.numel} elements of {first.cls} in one place and "
            f"{storage.numel} of {storage.cls} in another",
            where=where,
            remedy=REMEDY,
        )
