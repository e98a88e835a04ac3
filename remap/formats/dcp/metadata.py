"""Reads ``.metadata``: which tensors and objects a DCP folder has, and where each of their items lies.

In: a pickle, walked and never executed. Out: a Metadata. Source of the classes: torch
``distributed/checkpoint/metadata.py`` (Metadata and what it holds) and ``filesystem.py``
(``_StorageInfo``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath, PureWindowsPath

from remap.dtypes import BY_NAME, DType
from remap.errors import Damaged, Hostile, InputError
from remap.formats.torch.locate import NOT_MODEL, WRAPPERS
from remap.pickles.graph import attributes, items_of, key_of, lookup, mapping_pairs, plain
from remap.pickles.nodes import Call, Global, Value
from remap.pickles.screen import screen
from remap.pickles.survey import survey
from remap.pickles.walk import no_gc, walk

MODULE = "torch.distributed.checkpoint.metadata"
STORAGE = ("torch.distributed.checkpoint.filesystem", "_StorageInfo")

Path_ = tuple[str | int, ...]
Offsets = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Item:
    """A stretch of a ``.distcp`` file that is one torch.save archive; ``file`` is relative to the folder."""

    file: str
    offset: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class Chunk:
    """A part of a tensor: where it begins in it, its sizes, its item."""

    offsets: Offsets
    sizes: tuple[int, ...]
    item: Item


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor: element type, shape, and the chunks that it was saved in."""

    dtype: DType
    shape: tuple[int, ...]
    chunks: tuple[Chunk, ...]


@dataclass(frozen=True)
class Metadata:
    """What a folder holds.

    tensors  name -> tensor, in the order of the file
    objects  name -> item, of all that is no tensor: numbers, strings, lists
    paths    name -> its path in the nested state dict; an int is an index in a list
    opaque   unknown classes that the pickle names
    """

    tensors: Mapping[str, Tensor]
    objects: Mapping[str, Item]
    paths: Mapping[str, Path_]
    opaque: tuple[str, ...] = field(default=())


def read_metadata(path: Path) -> Metadata:
    """Read ``.metadata``. Raises Damaged, Hostile, InputError for what remap can't read."""
    data = path.read_bytes()
    with no_gc():
        walked = walk(data, where=str(path))
        opaque = screen(walked, where=str(path))
        survey(walked.root, str(path))
        root = walked.root
        if walked.end != len(data) or type(root) is not Call or not root.is_a(MODULE, "Metadata"):
            raise Damaged("not the metadata of a torch.distributed.checkpoint folder", where=path)
        return _Reader(path, root).read(opaque)


def merge(parts: Sequence[Metadata]) -> Metadata:
    """The whole of what every rank noted of its own items: chunks side by side, the first rank's objects."""
    tensors: dict[str, Tensor] = {}
    objects: dict[str, Item] = {}
    paths: dict[str, Path_] = {}
    for part in parts:
        for name, tensor in part.tensors.items():
            held = tensors.get(name, tensor)
            if (held.dtype, held.shape) != (tensor.dtype, tensor.shape):
                raise Damaged(f"the ranks disagree on {name!r}: files of two saves")
            chunks = {(c.offsets, c.sizes): c for c in (*tensor.chunks, *held.chunks)}
            tensors[name] = Tensor(tensor.dtype, tensor.shape, tuple(chunks.values()))
        objects = {**part.objects, **objects}
        paths = {**part.paths, **paths}
    opaque = sorted({name for part in parts for name in part.opaque})
    return Metadata(tensors, objects, paths, tuple(opaque))


class _Reader:
    """The walk through the nodes; collects all problems of a kind."""

    def __init__(self, path: Path, root: Call) -> None:
        self._path = path
        self._fields = _fields(root)
        self._unreadable: list[str] = []
        self._missing: list[str] = []
        self._items = self._storage()

    def read(self, opaque: tuple[str, ...]) -> Metadata:
        tensors: dict[str, Tensor] = {}
        objects: dict[str, Item] = {}
        for key, value in self._pairs("state_dict_metadata"):
            name = self._name(key)
            if type(value) is Call and value.is_a(MODULE, "TensorStorageMetadata"):
                tensor = self._tensor(name, value)
                if tensor is not None:
                    tensors[name] = tensor
            elif type(value) is Call and value.is_a(MODULE, "BytesStorageMetadata"):
                item = self._items.get((name, None))
                if item is None:
                    self._missing.append(name)
                else:
                    objects[name] = item
            else:
                raise self._damaged(f"{name!r} is {_what(value)}")
        if self._unreadable:
            raise InputError("tensors can't be read", where=self._path, problems=self._unreadable)
        if self._missing:
            raise Damaged(
                "no file is said to hold these",
                where=self._path,
                problems=self._missing,
                remedy="the save did not finish, or a storage writer was used that remap does not know",
            )
        return Metadata(tensors, objects, self._paths((*tensors, *objects)), opaque)

    def _damaged(self, what: str) -> Damaged:
        return Damaged(f"not as torch writes it: {what}", where=self._path)

    def _pairs(self, name: str) -> list[tuple[Value, Value]]:
        pairs = mapping_pairs(self._fields.get(name))
        if pairs is None:
            raise self._damaged(f"{name} is {_what(self._fields.get(name))}, no dict")
        return pairs

    def _name(self, key: Value) -> str:
        name = key_of(key)
        if not isinstance(name, str):
            raise self._damaged(f"a name is {plain(key)!r}")
        return name

    def _tensor(self, name: str, node: Call) -> Tensor | None:
        fields = _fields(node)
        properties = fields.get("properties")
        found, dtype = lookup(_state(properties), 0)
        if not found or type(dtype) is not Global or dtype.module != "torch":
            raise self._damaged(f"{name!r} has the element type {_what(dtype)}")
        if dtype.name not in BY_NAME:
            self._unreadable.append(f"{name}: {dtype.name}, which remap does not know")
            return None
        shape = self._sizes(fields.get("size"), name)
        chunks = []
        for chunk in items_of(fields.get("chunks")) or ():
            parts = _fields(chunk)
            offsets, sizes = (self._sizes(parts.get(n), name) for n in ("offsets", "sizes"))
            item = self._items.get((name, offsets))
            if item is None:
                self._missing.append(f"{name} at {list(offsets)}")
            else:
                chunks.append(Chunk(offsets, sizes, item))
        return Tensor(BY_NAME[dtype.name], shape, tuple(chunks))

    def _sizes(self, node: Value, name: str) -> tuple[int, ...]:
        value = plain(node)
        if not isinstance(value, (tuple, list)) or any(
            type(n) is not int or not 0 <= n < 1 << 62 for n in value
        ):
            raise self._damaged(f"{name!r} has the sizes {_what(node)}")
        return tuple(value)

    def _storage(self) -> dict[tuple[str, Offsets | None], Item]:
        items: dict[tuple[str, Offsets | None], Item] = {}
        for key, value in self._pairs("storage_data"):
            index = _fields(key)
            name = self._name(index.get("fqn"))
            offsets = None if index.get("offset") is None else self._sizes(index["offset"], name)
            items[name, offsets] = self._item(name, value)
        return items

    def _item(self, name: str, node: Value) -> Item:
        if type(node) is not Call or not node.is_a(*STORAGE):
            raise InputError(
                f"{name!r} is stored as {_what(node)}, by a storage writer that remap does not know",
                where=self._path,
                remedy="load it with its own storage reader and save it again with FileSystemWriter",
            )
        fields = _fields(node)
        file, offset, nbytes = (plain(fields.get(n)) for n in ("relative_path", "offset", "length"))
        through = plain(fields.get("transform_descriptors"))
        if through:
            raise InputError(
                f"{name!r} is stored through {through}, which remap can't undo",
                where=self._path,
                remedy="save it again with a FileSystemWriter without extensions",
            )
        if not isinstance(file, str) or type(offset) is not int or type(nbytes) is not int:
            raise self._damaged(f"{name!r} is stored at {file!r}, {offset!r}, {nbytes!r}")
        if not _is_inside(file) or offset < 0 or nbytes < 0:
            raise Hostile(
                f"{name!r} is said to lie outside of the folder: {file!r}, {offset}", where=self._path
            )
        return Item(file, offset, nbytes)

    def _paths(self, names: tuple[str, ...]) -> dict[str, Path_]:
        """Paths as the planner noted them; where it noted none, a name tells the model from the rest."""
        paths: dict[str, Path_] = {name: _guess(name) for name in names}
        for key, value in mapping_pairs(self._fields.get("planner_data")) or ():
            name, path = key_of(key), plain(value)
            if isinstance(name, str) and name in paths and isinstance(path, tuple) and path:
                if not all(type(part) in (str, int) for part in path):
                    raise self._damaged(f"{name!r} has the path {path!r}")
                paths[name] = path
        return paths


def _guess(name: str) -> Path_:
    """The path of a name of which no planner noted any: ``model.`` and ``optimizer.`` are taken off."""
    head, _, rest = name.partition(".")
    return (head, rest) if rest and (head in WRAPPERS or head.startswith(NOT_MODEL)) else (name,)


def _fields(node: Value) -> dict[str, Value]:
    return {str(key_of(k)): v for k, v in attributes(node)}


def _state(node: Value) -> Value:
    """What an object's ``__setstate__`` gets: for TensorProperties a tuple that begins with the dtype."""
    for what, values in (node.steps or ()) if type(node) is Call else ():
        if what == "build":
            return values[0]
    return None


def _is_inside(file: str) -> bool:
    for path in (PurePosixPath(file), PureWindowsPath(file)):
        if path.is_absolute() or path.drive or ".." in path.parts or not path.parts:
            return False
    return "\0" not in file


def _what(node: Value) -> str:
    return node.name if type(node) is Call else repr(plain(node))
