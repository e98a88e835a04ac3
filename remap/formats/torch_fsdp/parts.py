"""Reads DTensors and ShardedTensors off a walked pickle: the whole's shape, and the part in this file.

torch saves both through ``_rebuild_from_type_v2(_rebuild_wrapper_subclass, type, (type, dtype, size,
...), state)``. A DTensor's state has the local tensor, the mesh and the placements; a
ShardedTensor's has local shards with their offsets. Source: torch ``_tensor.py``
(``__reduce_ex__``), ``distributed/tensor/_api.py``, ``distributed/_shard/sharded_tensor/api.py``
(``__getstate__``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from remap.dtypes import BY_NAME
from remap.errors import Damaged, InputError
from remap.formats.chunks import Box
from remap.formats.torch.state import Contents, locate_tensor
from remap.formats.torch_fsdp.placements import Placement, box_of
from remap.pickles.graph import attributes, items_of, key_of, mapping_pairs, plain
from remap.pickles.nodes import Call, Global, Value
from remap.types import Location, TensorSpec

DISTRIBUTED = "torch.distributed"


@dataclass(frozen=True, slots=True)
class Part:
    """What one file has of a tensor.

    spec   of the whole
    boxes  the parts in this file; none where this rank has none
    rank   that wrote the file, None where the pickle does not say
    ranks  how many there were, of the mesh or the process group
    """

    spec: TensorSpec
    boxes: tuple[Box, ...]
    rank: int | None
    ranks: int


def kind_of(node: Value) -> str | None:
    """``DTensor`` or ``ShardedTensor``, None for anything else."""
    if (
        type(node) is not Call
        or not node.is_a("torch._tensor", "_rebuild_from_type_v2")
        or len(node.args) != 4
    ):
        return None
    cls = node.args[1]
    if type(cls) is not Global or not cls.module.startswith(DISTRIBUTED):
        return None
    return cls.name if cls.name in ("DTensor", "ShardedTensor") else None


def read_part(node: Value, contents: Contents, where: str) -> Part:
    """The part that a DTensor or ShardedTensor node describes. Raises Damaged, InputError."""
    assert type(node) is Call
    spec = _whole(node, where)
    if kind_of(node) == "DTensor":
        return _dtensor(spec, _fields(node.args[3]), contents, where)
    return _sharded(spec, node.args[3], contents, where)


def _whole(node: Call, where: str) -> TensorSpec:
    """Element type and shape of the whole, which ``_rebuild_wrapper_subclass`` gets."""
    made = node.args[2]
    if not isinstance(made, tuple) or len(made) < 3 or type(made[1]) is not Global:
        raise Damaged("a distributed tensor without type and size", where=where)
    if made[1].name not in BY_NAME:
        raise InputError(f"the tensor is {made[1].path}, which remap does not know", where=where)
    return TensorSpec(BY_NAME[made[1].name], _ints(made[2], where))


def _dtensor(spec: TensorSpec, state: Mapping[str, Value], contents: Contents, where: str) -> Part:
    layout = _fields(state.get("_spec"))
    mesh = _fields(layout.get("mesh"))
    shape = _mesh_shape(mesh, contents, where)
    rank = plain(mesh.get("_rank"))
    coordinate = plain(mesh.get("_coordinate_on_dim"))
    if not isinstance(coordinate, (list, tuple)):
        raise InputError("a DTensor that does not say where in its mesh it lies", where=where)
    placements = [_placement(p, where) for p in items_of(layout.get("placements")) or ()]
    try:
        offsets, sizes = box_of(spec.shape, shape, coordinate, placements)
    except ValueError as e:
        raise Damaged(f"a DTensor on a mesh of shape {list(shape)} that can't be: {e}", where=where) from None
    box = _box(offsets, sizes, spec, state.get("_local_tensor"), contents, where)
    return Part(spec, (box,), rank if type(rank) is int else None, prod(shape))


def _mesh_shape(mesh: Mapping[str, Value], contents: Contents, where: str) -> tuple[int, ...]:
    """Of a DeviceMesh: from its layout (torch 2.9 and later), else from the tensor of ranks."""
    layout = _fields(mesh.get("_layout"))
    axes = items_of(layout.get("axes"))
    if axes is not None:
        return tuple(prod(_ints(_fields(a).get("shape"), where)) for a in axes)
    sizes = items_of(layout.get("shape"))
    if sizes is not None:
        return tuple(prod(_ints(n if items_of(n) is not None else (n,), where)) for n in sizes)
    ranks = contents.survey.tensors.get(id(mesh.get("mesh")))
    if ranks is None:
        raise InputError("a DTensor whose mesh does not say its shape", where=where)
    return ranks.shape


def _placement(node: Value, where: str) -> Placement:
    name = node.function.name if type(node) is Call and type(node.function) is Global else "?"
    fields = {key: plain(value) for key, value in _fields(node).items()}
    if name == "Replicate":
        return Placement(None)
    dim, factor = fields.get("dim"), fields.get("split_factor", 1)
    if name in ("Shard", "_StridedShard") and type(dim) is int and type(factor) is int:
        return Placement(dim, factor)
    raise InputError(
        f"a DTensor is placed as {name}: no rank has its value",
        where=where,
        remedy="redistribute it to Shard or Replicate before saving",
    )


def _sharded(spec: TensorSpec, state: Value, contents: Contents, where: str) -> Part:
    items = items_of(state) or ()
    if len(items) < 3:
        raise Damaged("a ShardedTensor without shards", where=where)
    group = {key: plain(value) for key, value in _fields(items[2]).items()}
    boxes = []
    for shard in items_of(items[0]) or ():
        held = _fields(shard)
        at = _fields(held.get("metadata"))
        offsets, sizes = (_ints(at.get(n), where) for n in ("shard_offsets", "shard_sizes"))
        boxes.append(_box(offsets, sizes, spec, held.get("tensor"), contents, where))
    rank, ranks = group.get("global_rank"), group.get("global_world_size")
    if type(rank) is not int or type(ranks) is not int:
        raise Damaged("a ShardedTensor that does not say its rank", where=where)
    return Part(spec, tuple(boxes), rank, ranks)


def _box(
    offsets: tuple[int, ...],
    sizes: tuple[int, ...],
    spec: TensorSpec,
    node: Value,
    contents: Contents,
    where: str,
) -> Box:
    """The local tensor, which has to be as large as its part."""
    ref = contents.survey.tensors.get(id(node))
    if ref is None or ref.dtype is None:
        raise InputError(f"its part in this file is {ref.kind if ref else 'no tensor'}", where=where)
    if (ref.dtype, ref.shape) != (spec.dtype, sizes):
        raise Damaged(
            f"its part in this file is {TensorSpec(ref.dtype, ref.shape)}, should be "
            f"{TensorSpec(spec.dtype, sizes)} at {list(offsets)} of {spec}",
            where=where,
        )
    place = locate_tensor(contents, ref, TensorSpec(spec.dtype, sizes))
    if not isinstance(place, Location):
        raise InputError("it was written on a big-endian machine", where=where)
    return Box(offsets, sizes, place)


def _fields(node: Value) -> dict[str, Value]:
    """The attributes of an object, or of the state that it is given; a class with slots has a tuple."""
    if type(node) is Call:
        return {str(key_of(k)): v for k, v in attributes(node)}
    for state in node if isinstance(node, tuple) else (node,):
        pairs = mapping_pairs(state)
        if pairs is not None:
            return {str(key_of(k)): v for k, v in pairs}
    return {}


def _ints(node: Value, where: str) -> tuple[int, ...]:
    value = plain(node)
    if isinstance(value, (list, tuple)) and all(type(n) is int and 0 <= n < 1 << 62 for n in value):
        return tuple(value)
    raise Damaged(f"{value!r} should be a list of sizes", where=where)
