"""What a universal checkpoint says of tensor-parallel ranks: how each takes its part of a whole tensor.

    cat_dim             the dimension along which ranks follow one another
    vocab_tensor        rows are padded for the ranks that load it
    param_n_sub_params  so many equal blocks on top of each other, each of them divided
    sub_param_shape     blocks of different sizes
    remap_addends       N: the parts of N ranks, of which the tensor is the sum, one after another. DeepSpeed
                        has no word for it: what has a rank's own shape is to it a copy for every rank

In: the class of a tensor. Out: what is written beside it. Source: DeepSpeed
``checkpoint/universal_checkpoint.py`` (``load_hp_checkpoint_state``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from remap.errors import UsageError
from remap.expr import Concat, Constant, Expr
from remap.partitions.addends import Addends
from remap.partitions.base import Partition
from remap.partitions.blocks import Blocks
from remap.partitions.stretches import Stretches
from remap.partitions.vocabulary import Vocabulary
from remap.pickles.build import node_of
from remap.pickles.nodes import Call, Global, Value
from remap.types import Entry, Location, TensorSpec

CAT_DIM = "cat_dim"
ADDENDS = "remap_addends"


def said_of(key: str, cls: Partition, spec: TensorSpec, ranks: int) -> Mapping[str, Value]:
    """What is said beside a tensor of the class ``cls`` that ``ranks`` are to load. Raises UsageError for
    what DeepSpeed would divide otherwise."""
    match cls:
        case Vocabulary():
            _check_rows(key, cls, spec, ranks)
            return {CAT_DIM: 0, "vocab_tensor": True}
        case Blocks(whole=True) if ranks > 1 or all(u.value for u in cls.units):
            return {CAT_DIM: cls.dim, "sub_param_shape": _blocks(key, cls, spec)}
        case Blocks(whole=False):
            return {CAT_DIM: cls.dim, "param_n_sub_params": len(cls.units)}
        case Stretches():
            return {CAT_DIM: cls.dim}
        case Addends() if ranks > 1:
            return {CAT_DIM: 0, ADDENDS: ranks}
    return {CAT_DIM: 0}


def addends_of(said: Mapping[str, Value]) -> int:
    """How many ranks' parts lie one after another in a tensor of which this is said."""
    found = said.get(ADDENDS, 1)
    return found if type(found) is int and found > 0 else 1


def in_parts(whole: Expr, said: Mapping[str, Value], *, moment: bool) -> Expr:
    """The tensor as it is written: of a sum every rank's addend, of which the first is all of it; of its
    moment every rank's copy."""
    count = addends_of(said)
    if count == 1:
        return whole
    rest: Expr = whole if moment else Constant(whole.spec, -0.0)
    return Concat((whole, *[rest] * (count - 1)), 0)


def from_parts(stored: Entry, said: Mapping[str, Value]) -> Entry:
    """The whole tensor of one that was written ``in_parts``: its first."""
    count, shape = addends_of(said), stored.spec.shape
    if count == 1 or not shape or shape[0] % count:
        return stored
    spec = TensorSpec(stored.spec.dtype, (shape[0] // count, *shape[1:]))
    place = stored.location
    return Entry(stored.key, spec, replace(place, crc32=None) if isinstance(place, Location) else place)


def _blocks(key: str, cls: Blocks, spec: TensorSpec) -> Call:
    """``SubparamShape``: the sizes of the blocks in the place of their sum."""
    shape: list[object] = list(spec.shape)
    unit = spec.shape[cls.dim] // sum(u.known for u in cls.units)
    shape[cls.dim] = tuple(u.known * unit for u in cls.units)
    state = node_of({"patterns": [key], "shape": tuple(shape), "partition_dim": cls.dim})
    return Call("newobj", Global(_MODULE, "SubparamShape"), (), [("build", [state])])


_MODULE = "deepspeed.checkpoint.universal_checkpoint"


def _check_rows(key: str, cls: Vocabulary, spec: TensorSpec, ranks: int) -> None:
    if ranks > 1 and cls.rows(spec.shape[0], ranks) == spec.shape[0] * ranks:
        raise UsageError(
            f"the {spec.shape[0]} words are as many as each of {ranks} ranks has rows: DeepSpeed would give "
            "every rank all of them",
            where=key,
            remedy="take another number of ranks, or another make_vocab_size_divisible_by",
        )
