"""Writes a graph of nodes as a fresh pickle stream; the way back from ``walk``.

In: nodes, among them NewTensor for tensors that this file stores anew. Out: bytes of protocol 2 or
the protocol of the stream that the nodes come from, and the storages that the stream names.
Deterministic: the same nodes give the same bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from remap.dtypes import DType
from remap.errors import UsageError
from remap.pickles.nodes import ByteString, Call, Dict, Global, List, Persistent, Set, Text, Value
from remap.pickles.text import PYTHON2, encode_text

BATCH = 1000
"""Items between two marks, as CPython batches them."""


@dataclass(frozen=True, slots=True, eq=False)
class NewTensor:
    """A dense tensor that owns its storage, as ``torch.save`` pickles it.

    ``storage`` is the storage key; equal keys are ties.
    """

    storage: str
    dtype: DType
    shape: tuple[int, ...]
    numel: int


@dataclass(frozen=True, slots=True)
class Raw:
    """Bytes to be written as they are."""

    data: bytes


@dataclass(frozen=True, slots=True)
class _Put:
    """Remember what is on the stack as this node."""

    node: Value


class Writer:
    """Writes nodes; ``storages`` collects the keys of the storages that were named, in order."""

    def __init__(self, replace: Mapping[int, Value] | None = None, protocol: int = 2):
        self.out = bytearray(b"\x80" + bytes([max(2, protocol)]))
        self.storages: dict[str, None] = {}
        self._replace = replace or {}
        self._slots: dict[object, int] = {}
        self._keep: list[Value] = []
        self._open: set[int] = set()

    def write(self, root: Value) -> bytes:
        """The whole stream for ``root``."""
        todo: list[Value] = [root]
        while todo:
            node = todo.pop()
            if type(node) is Raw:
                self.out += node.data
            elif type(node) is _Put:
                self._open.discard(id(node.node))
                self._put(id(node.node))
                self._keep.append(node.node)
            else:
                todo.extend(reversed(self._node(self._replace.get(id(node), node))))
        return bytes(self.out) + b"."

    def _put(self, name: object) -> None:
        slot = self._slots[name] = len(self._slots)
        self.out += b"q" + bytes([slot]) if slot < 256 else b"r" + struct.pack("<I", slot)

    def _get(self, name: object) -> bool:
        slot = self._slots.get(name)
        if slot is None:
            return False
        self.out += b"h" + bytes([slot]) if slot < 256 else b"j" + struct.pack("<I", slot)
        return True

    def _node(self, node: Value) -> list[Value]:
        """Write a node, or the beginning of it; returns what is to be written next."""
        scalar = encode_scalar(node)
        if scalar is not None:
            self.out += scalar
            return []
        if type(node) is Text:
            self.text(node.text, node.op)
            return []
        if type(node) is Global:
            self.named(node.module, node.name)
            return []
        if type(node) is NewTensor:
            self._tensor(node)
            return []
        if self._get(id(node)):
            return []
        if id(node) in self._open:
            raise UsageError(
                "an object in the file refers to itself while it is being built",
                remedy="such a file can be renamed, but not changed otherwise",
            )
        return self._container(node)

    def _container(self, node: Value) -> list[Value]:
        if isinstance(node, tuple):
            return self._tuple(node)
        if type(node) is Dict:
            return [Raw(b"}"), _Put(node), *_batches((x for p in node.pairs for x in p), b"u", 2)]
        if type(node) is List:
            return [Raw(b"]"), _Put(node), *_batches(node.items, b"e", 1)]
        if type(node) is Set and not node.frozen:
            return [Raw(b"\x8f"), _Put(node), *_batches(node.items, b"\x90", 1)]
        self._open.add(id(node))
        if type(node) is Set:
            return [Raw(b"("), *node.items, Raw(b"\x91"), _Put(node)]
        if type(node) is Persistent:
            return self._persistent(node)
        assert type(node) is Call
        return [*_made(node), _Put(node), *_steps(node)]

    def _tuple(self, node: tuple[Value, ...]) -> list[Value]:
        if not node:
            return [Raw(b")")]
        self._open.add(id(node))
        if len(node) <= 3:
            return [*node, Raw((b"\x85", b"\x86", b"\x87")[len(node) - 1]), _Put(node)]
        return [Raw(b"("), *node, Raw(b"t"), _Put(node)]

    def _persistent(self, node: Persistent) -> list[Value]:
        self._open.discard(id(node))
        assert isinstance(node.id, tuple)
        pid = node.id[:5]  # legacy files have a sixth part, always None
        if type(pid[2]) is Text:
            self.storages[pid[2].text] = None
        return [Raw(b"("), *pid, Raw(b"tQ")]

    def text(self, text: str, op: int = 0x58) -> None:
        """Write a string, or a reference to where it was written before."""
        name = (op in PYTHON2, text)
        if not self._get(name):
            self.out += encode_text(text, op)
            self._put(name)

    def named(self, module: str, name: str) -> None:
        """Write a global, or a reference to it."""
        if not self._get((module, name, "global")):
            self.out += f"c{module}\n{name}\n".encode()
            self._put((module, name, "global"))

    def _tensor(self, node: NewTensor) -> None:
        """What ``Tensor.__reduce_ex__`` gives; version 3 for types without a storage class."""
        if self._get(id(node)):
            return
        self.storages[node.storage] = None
        legacy = node.dtype.storage
        self.named("torch._utils", "_rebuild_tensor_v2" if legacy else "_rebuild_tensor_v3")
        self.out += b"(("
        self.text("storage")
        self.named(*(("torch", legacy) if legacy else ("torch.storage", "UntypedStorage")))
        self.text(node.storage)
        self.text("cpu")
        self.out += encode_int(node.numel if legacy else node.numel * node.dtype.itemsize)
        self.out += b"tQK\x00" + _sizes(node.shape) + _sizes(_strides(node.shape)) + b"\x89"
        self.named("collections", "OrderedDict")
        self.out += b")R"
        if not legacy:
            self.named("torch", node.dtype.name)
        self.out += b"tR"
        self._put(id(node))
        self._keep.append(node)


def _strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    strides: list[int] = []
    step = 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def _sizes(values: tuple[int, ...]) -> bytes:
    """A tuple of integers."""
    body = b"".join(map(encode_int, values))
    if not values:
        return b")"
    if len(values) <= 3:
        return body + (b"\x85", b"\x86", b"\x87")[len(values) - 1]
    return b"(" + body + b"t"


def _batches(items: Iterable[Value], op: bytes, width: int) -> list[Value]:
    values = list(items)
    out: list[Value] = []
    for start in range(0, len(values), BATCH * width):
        out += [Raw(b"("), *values[start : start + BATCH * width], Raw(op)]
    return out


def _made(node: Call) -> list[Value]:
    """The opcodes that make a call's result."""
    if node.how == "inst":
        assert isinstance(node.function, Global)
        line = f"i{node.function.module}\n{node.function.name}\n".encode()
        return [Raw(b"("), *node.args, Raw(line)]
    if node.how == "obj":
        return [Raw(b"("), node.function, *node.args, Raw(b"o")]
    if node.how == "newobj_ex":
        return [node.function, *node.args, Raw(b"\x92")]
    return [node.function, node.args, Raw(b"\x81" if node.how == "newobj" else b"R")]


def _steps(node: Call) -> list[Value]:
    """The opcodes of what is done to the result, in order."""
    out: list[Value] = []
    for what, values in node.steps or ():
        if what == "build":
            out += [*values, Raw(b"b")]
        else:
            out += _batches(values, b"u", 2) if what == "set" else _batches(values, b"e", 1)
    return out


def encode_int(value: int) -> bytes:
    """An integer in its shortest opcode, as CPython chooses it."""
    if 0 <= value < 256:
        return b"K" + bytes([value])
    if 0 <= value < 65536:
        return b"M" + struct.pack("<H", value)
    if -(1 << 31) <= value < 1 << 31:
        return b"J" + struct.pack("<i", value)
    size = value.bit_length() // 8 + 1
    raw = value.to_bytes(size, "little", signed=True)
    return (b"\x8a" + bytes([size]) if size < 256 else b"\x8b" + struct.pack("<i", size)) + raw


def encode_scalar(value: Value) -> bytes | None:
    """The opcode for a value without parts; None for anything else."""
    if value is None or value is True or value is False:
        return {None: b"N", True: b"\x88", False: b"\x89"}[value]
    if type(value) is int:
        return encode_int(value)
    if type(value) is float:
        return b"G" + struct.pack(">d", value)
    if type(value) is bytes:
        short = len(value) < 256
        return (b"C" + bytes([len(value)]) if short else b"\x8e" + struct.pack("<Q", len(value))) + value
    if type(value) is bytearray:
        return b"\x96" + struct.pack("<Q", len(value)) + bytes(value)
    if type(value) is ByteString:
        return b"T" + struct.pack("<i", len(value.data)) + value.data
    return None
