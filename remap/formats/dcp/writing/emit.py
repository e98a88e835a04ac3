"""Writes ``.metadata``: the pickle that torch's FileSystemReader loads, from nothing.

The classes are those of torch 2.3 and later (before, TensorProperties lay elsewhere). What torch
puts in beside, a random id of the save and the path that it was written to, is left out: the same
input gives the same bytes.
"""

from __future__ import annotations

from collections.abc import Mapping

from remap.dtypes import DType
from remap.formats.dcp.metadata import MODULE, STORAGE, Item, Metadata, Offsets, Tensor
from remap.pickles.build import node_of
from remap.pickles.emit import Writer
from remap.pickles.nodes import Call, Dict, Global, List, Text, Value

VERSION = "1.0.0"
"""torch ``distributed/checkpoint/filesystem.py`` (``CURRENT_DCP_VERSION``)."""


def write_metadata(metadata: Metadata) -> bytes:
    """The bytes of ``.metadata``."""
    entries: dict[str, Value] = {}
    storage: list[tuple[Value, Value]] = []
    properties: dict[DType, Call] = {}
    for name, item in metadata.objects.items():
        entries[name] = _object("BytesStorageMetadata", {})
        storage.append((_index(name), _stored(item)))
    for name, tensor in metadata.tensors.items():
        entries[name] = _tensor(tensor, properties.setdefault(tensor.dtype, _properties(tensor.dtype)))
        storage += [(_index(name, c.offsets, i), _stored(c.item)) for i, c in enumerate(tensor.chunks)]
    root = _object(
        "Metadata",
        {
            "state_dict_metadata": _dict(entries),
            "planner_data": node_of(metadata.paths),
            "storage_data": Dict(storage),
            "storage_meta": None,
            "version": Text(VERSION),
        },
    )
    return Writer().write(root)


def _dict(values: Mapping[str, Value]) -> Dict:
    return Dict([(Text(k), v) for k, v in values.items()])


def _object(name: str, fields: Mapping[str, Value], module: str = MODULE) -> Call:
    """An instance of a dataclass, as pickle makes it: ``__new__``, then its attributes."""
    return Call("newobj", Global(module, name), (), [("build", [_dict(fields)])] if fields else None)


def _size(sizes: tuple[int, ...]) -> Call:
    return Call("reduce", Global("torch", "Size"), (tuple(sizes),))


def _properties(dtype: DType) -> Call:
    """Element type, layout, requires_grad, memory format, pin_memory; torch heeds the first only."""
    layout = Call("reduce", Global("torch.serialization", "_get_layout"), (Text("torch.strided"),))
    memory = Call("reduce", Global(MODULE, "_MEM_FORMAT_ENCODING"), (0,))
    state = (Global("torch", dtype.name), layout, False, memory, False)
    return Call("newobj", Global(MODULE, "TensorProperties"), (), [("build", [state])])


def _tensor(tensor: Tensor, properties: Call) -> Call:
    chunks: list[Value] = [
        _object("ChunkStorageMetadata", {"offsets": _size(c.offsets), "sizes": _size(c.sizes)})
        for c in tensor.chunks
    ]
    fields: dict[str, Value] = {"properties": properties, "size": _size(tensor.shape), "chunks": List(chunks)}
    return _object("TensorStorageMetadata", fields)


def _index(name: str, offsets: Offsets | None = None, number: int | None = None) -> Call:
    fields: dict[str, Value] = {"fqn": Text(name), "index": number}
    if offsets is not None:
        fields["offset"] = _size(offsets)
    return _object("MetadataIndex", fields)


def _stored(item: Item) -> Call:
    module, name = STORAGE
    fields: dict[str, Value] = {
        "relative_path": Text(item.file),
        "offset": item.offset,
        "length": item.nbytes,
    }
    return _object(name, fields, module)
