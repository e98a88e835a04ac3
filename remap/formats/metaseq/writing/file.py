"""Writes one file of a metaseq checkpoint in the likeness of another: new tensors, everything else kept.

In: a file that was read and a Content, what the new one is to hold. Out: an OutFile. The pickle of the
likeness is emitted again with its state dicts, optimizer state, ``shard_metadata`` and the facts of its
configuration replaced; what else is in it, objects of unknown classes among it, comes along.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from remap.errors import UsageError
from remap.expr import Expr
from remap.formats.base import OutFile
from remap.formats.metaseq.files.config import CONFIG, set_facts
from remap.formats.metaseq.files.metadata import Metadata
from remap.formats.metaseq.files.shards import METADATA, OPTIMIZER, Place
from remap.formats.metaseq.writing.metadata_nodes import edited, fresh
from remap.formats.torch.state import TorchFile
from remap.formats.torch.writing.emit import check_names, new_tensors
from remap.formats.torch.writing.rebuild import reassemble
from remap.pickles.emit import NewTensor
from remap.pickles.graph import key_of, lookup, mapping_pairs
from remap.pickles.nodes import Call, Dict, Global, List, Pairs, Text, Value


@dataclass(frozen=True)
class Slot:
    """The state of one index of the optimizer: ``tensors`` by slot; the rest is that of index ``like``."""

    index: int
    like: int
    tensors: Mapping[str, Expr]


@dataclass(frozen=True)
class NewState:
    """The optimizer's state of a new file.

    slots   in order
    groups  the indices of every parameter group; None where they stay
    id_map  index -> index of its unit, for a state by parameter; None for one by flat tensor
    """

    slots: Sequence[Slot]
    groups: Sequence[Sequence[int]] | None = None
    id_map: Mapping[int, int | None] | None = None


@dataclass(frozen=True)
class Content:
    """What a new file is to hold.

    trees      place -> its tensors; state dicts at other places go away
    optimizer  None to leave it out; "kept" for the one of the likeness, untouched; -1 for a note that
               shard 0 has it
    metadata   None to leave it out
    padding    flat key -> padding that this file's shard has; {} where it is not sharded
    facts      name -> value, for the configuration
    """

    trees: Mapping[Place, Mapping[str, Expr]]
    optimizer: NewState | str | int | None = None
    metadata: Metadata | None = None
    padding: Mapping[str, int] = field(default_factory=dict)
    facts: Mapping[str, object] = field(default_factory=dict)


def write_like(file: TorchFile, name: str, content: Content) -> OutFile:
    """The file ``name`` with ``content``, in the likeness of ``file``.

    Tensors are called ``name:place`` in what is written of them. Raises UsageError for big-endian files.
    """
    contents = file.contents
    if not contents.little:
        raise UsageError("a big-endian file can't be resharded", where=file.path)
    exprs = {file_key(name, *place, k): e for place, tree in content.trees.items() for k, e in tree.items()}
    state = content.optimizer if isinstance(content.optimizer, NewState) else None
    for slot in state.slots if state else ():
        for k, e in slot.tensors.items():
            exprs[file_key(name, OPTIMIZER, "state", str(slot.index), k)] = e
    check_names(k for tree in content.trees.values() for k in tree)
    nodes, records = new_tensors(exprs, taken=contents.storages)
    root = contents.walked.root
    changed: dict[int, Value] = {}
    for place, tree in content.trees.items():
        old = _at(root, place)
        changed[id(old)] = _state_dict(
            old, {k: nodes[file_key(name, *place, k)] for k in tree}, contents.survey.tensors
        )
    pairs: Pairs = list(mapping_pairs(root) or ())
    if content.optimizer is None:
        pairs = [p for p in pairs if key_of(p[0]) != OPTIMIZER]
    elif isinstance(content.optimizer, int):
        pairs = [(k, content.optimizer if key_of(k) == OPTIMIZER else v) for k, v in pairs]
    elif state is not None:
        changed.update(_optimizer(lookup(root, OPTIMIZER)[1], state, nodes, name))
    changed.update(set_facts(lookup(root, CONFIG)[1], content.facts))
    pairs = _with_metadata(pairs, content, changed)
    changed[id(root)] = _container(root, pairs)
    return replace(reassemble(contents, name, changed, records), carries=True)


def file_key(file: str, *place: str) -> str:
    """What a tensor at a place of a file is called in what is written."""
    return f"{file}:{'.'.join(place)}"


def _at(root: Value, place: Place) -> Value:
    node = root
    for step in place:
        node = lookup(node, step)[1]
    return node


def _container(old: Value, pairs: Pairs) -> Value:
    """A dict, or an OrderedDict with its attributes, with other pairs."""
    if not isinstance(old, Call):
        return Dict(pairs)
    items = [part for pair in pairs for part in pair]
    states = [step for step in old.steps or () if step[0] == "build"]
    return Call("reduce", Global("collections", "OrderedDict"), (), [("set", items), *states])


def _state_dict(old: Value, nodes: Mapping[str, NewTensor], tensors: Collection[int]) -> Value:
    """The tensors of a state dict replaced; what is no tensor (ids in ``tensors``) stays."""
    rest = [(k, v) for k, v in mapping_pairs(old) or () if id(v) not in tensors]
    return _container(old, [*((Text(k), node) for k, node in nodes.items()), *rest])


def _optimizer(old: Value, state: NewState, nodes: Mapping[str, NewTensor], name: str) -> dict[int, Value]:
    held = lookup(old, "state")[1]
    slots: Pairs = []
    for slot in state.slots:
        like = lookup(held, slot.like)[1]
        pairs: Pairs = []
        for key, value in mapping_pairs(like) or ():
            new = nodes.get(file_key(name, OPTIMIZER, "state", str(slot.index), str(key_of(key))))
            pairs.append((key, value if new is None else new))
        slots.append((slot.index, Dict(pairs)))
    changed: dict[int, Value] = {id(held): _container(held, slots)}
    pairs = [
        p for p in mapping_pairs(old) or () if key_of(p[0]) not in ("param_id_map", "uncollected_local_ids")
    ]
    if state.groups is not None:
        groups = lookup(old, "param_groups")[1]
        if isinstance(groups, List):
            for group, params in zip(groups.items, state.groups, strict=True):
                changed[id(group)] = Dict(
                    [
                        (k, List(list(params)) if key_of(k) == "params" else v)
                        for k, v in mapping_pairs(group) or ()
                    ]
                )
    if state.id_map is not None:
        pairs.append((Text("param_id_map"), Dict(list(state.id_map.items()))))
        pairs.append((Text("uncollected_local_ids"), List([])))
    changed[id(old)] = _container(old, pairs)
    return changed


def _with_metadata(pairs: Pairs, content: Content, changed: dict[int, Value]) -> Pairs:
    """The top level with ``shard_metadata`` edited, added or left out."""
    old = next((v for k, v in pairs if key_of(k) == METADATA), None)
    if content.metadata is None:
        return [p for p in pairs if key_of(p[0]) != METADATA]
    if old is None:
        rest = [p for p in pairs if key_of(p[0]) != METADATA]
        return [*rest, (Text(METADATA), fresh(content.metadata, content.padding))]
    changed.update(edited(old, content.metadata, content.padding))
    return pairs


def facts(
    parts: int, shards: int, part: int, shard: int, *, flat: bool, named: bool = True
) -> dict[str, object]:
    """What the configuration of one file says of where it belongs; of its suffix only where its name has a
    part (``named``).

    Source: metaseq ``modules/megatron/mpu/initialize.py`` (ranks of one shard are adjacent).
    """
    suffix = {"checkpoint_suffix": f"-model_part-{part}"} if named else {}
    return {
        "model_parallel_size": parts,
        "distributed_world_size": parts * shards,
        "distributed_rank": shard * parts + part,
        "use_sharded_state": flat,
        **suffix,
    }
