"""One rank's optimizer file of ZeRO, its headers read.

``[bf16_]zero_pp_rank_{d}_mp_rank_{m}_optim_states.pt``:

    optimizer_state_dict
        zero_stage, partition_count
        single_partition_of_fp32_groups    stages 1 and 2: a flat tensor a group, the end padding cut off
        param_alignment_paddings           elements after each weight (since 0.19)
        base_optimizer_state               {state: {group: {exp_avg, ...}}, param_groups}, or (elastic) a list
        fp32_flat_groups                   stage 3: a flat tensor a sub-group
        optimizer_state_dict               {state: {sub-group: ...}, param_groups}

``param_slice_mappings`` is not read: it is wrong where gradients were reduced round robin. Source: DeepSpeed
``runtime/zero/stage_1_and_2.py``, ``stage3.py``, ``runtime/bf16_optimizer.py`` (``state_dict``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from remap.errors import Damaged
from remap.formats.deepspeed.names import ZeroFile
from remap.formats.torch import file as torch_file
from remap.formats.torch.state import TorchFile
from remap.pickles.graph import Opaque
from remap.pickles.nodes import Call
from remap.types import Entry

STATE = "optimizer_state_dict"
FLAT = "fp32_flat_groups"
PARTITION = "single_partition_of_fp32_groups"
BASE = "base_optimizer_state"
ALIGNMENT = "param_alignment_paddings"
GROUPS = "param_groups"


@dataclass(frozen=True)
class Group:
    """One flat tensor of a rank, and the optimizer's state of it.

    weights  the fp32 weights of this rank, 1-D
    slots    name -> tensor: moments, 1-D like the weights or with padding at the end; steps, 0-dim
    values   name -> plain value: steps that are numbers
    """

    weights: Entry
    slots: Mapping[str, Entry]
    values: Mapping[str, object]


@dataclass(frozen=True)
class Shard:
    """A rank's file.

    stage         1, 2 or 3; 1 where it is not said (bf16 without ZeRO)
    counts        into how many ranks each group is cut
    groups        flat tensors, in order
    alignment     padding after each weight of each group, () where there is none
    settings      of the parameter groups; ``params`` are numbers of ``groups``
    rest          what else the optimizer keeps: plain values by name
    """

    file: ZeroFile
    stage: int
    counts: tuple[int, ...]
    groups: tuple[Group, ...]
    alignment: tuple[tuple[int, ...], ...]
    settings: tuple[Mapping[str, object], ...]
    rest: Mapping[str, object]
    opaque: tuple[str, ...]


def read_shard(file: ZeroFile) -> Shard:
    """Read the headers of one file. Raises InputError, Damaged where it is no optimizer file of ZeRO."""
    read = torch_file.read(file.path, state_dict=False)
    held = read.plain(STATE) if STATE in read.keys else None
    flat = FLAT if isinstance(held, dict) and FLAT in held else PARTITION
    if not isinstance(held, dict) or not isinstance(held.get(flat), list):
        raise Damaged(
            f"no optimizer file of ZeRO: there is no {PARTITION} in it, nor {FLAT}",
            where=file.path,
            remedy="remove it, and what else was left from another run",
        )
    place = "optimizer_state_dict" if flat == FLAT else BASE
    weights = list(_flat_tensors(read, flat))
    base = held.get(place)
    settings = _settings(base, len(weights))
    return Shard(
        file,
        _stage(read) or (3 if flat == FLAT else 1),
        _counts(held.get("partition_count"), len(weights), file.path),
        tuple(_group(read, place, base, _index(settings, g, flat), w) for g, w in enumerate(weights)),
        tuple(_alignment(held.get(ALIGNMENT), file.path)),
        tuple(settings),
        {
            k: v
            for k, v in held.items()
            if k in ("loss_scaler", "dynamic_loss_scale", "overflow", "clip_grad")
        },
        read.opaque,
    )


def _stage(read: TorchFile) -> int | None:
    """``zero_stage``: a number, or a call of the enumeration's class with it."""
    if "zero_stage" not in read.plain(STATE):  # type: ignore[operator]
        return None
    node = read.node_at(STATE, "zero_stage")
    if type(node) is Call and len(node.args) == 1:
        node = node.args[0]
    return node if type(node) is int else None


def _counts(value: object, groups: int, path: Path) -> tuple[int, ...]:
    counts = value if isinstance(value, list) else [value] * groups
    if len(counts) != groups or not all(type(c) is int for c in counts):
        raise Damaged(
            f"partition_count is {value!r}, there are {groups} groups",
            where=path,
            remedy="fetch the file again",
        )
    return tuple(counts)


def _alignment(value: object, path: Path) -> Iterator[tuple[int, ...]]:
    for group in value if isinstance(value, list) else ():
        if not isinstance(group, list) or not all(type(n) is int and n >= 0 for n in group):
            raise Damaged(f"{ALIGNMENT} is {value!r}", where=path, remedy="fetch the file again")
        yield tuple(group)


def _flat_tensors(read: TorchFile, name: str) -> Iterator[Entry]:
    held: Mapping[str, Sequence[object]] = read.plain(STATE)  # type: ignore[assignment]
    for i in range(len(held[name])):
        entry = read.tensor_at(STATE, name, i)
        if entry is None or len(entry.spec.shape) != 1:
            raise Damaged("is no flat tensor", where=f"{read.path}: {STATE}.{name}[{i}]")
        yield entry


def _settings(base: object, groups: int) -> list[Mapping[str, object]]:
    """The parameter groups; an elastic checkpoint keeps none."""
    found = base.get(GROUPS) if isinstance(base, dict) else None
    if isinstance(found, list) and all(isinstance(g, dict) for g in found):
        return found
    return [{"params": [g]} for g in range(groups)]


def _index(settings: Sequence[Mapping[str, object]], group: int, flat: str) -> int:
    """The number under which the state of a flat tensor is kept: ZeRO-3 counts sub-groups, the others have
    one flat tensor in each parameter group."""
    params = settings[group].get("params") if flat == PARTITION and group < len(settings) else None
    return params[0] if isinstance(params, list) and len(params) == 1 and type(params[0]) is int else group


def _group(read: TorchFile, place: str, base: object, index: int, weights: Entry) -> Group:
    """``base`` is what lies at ``place``: states by number, or a list of them."""
    path = (STATE, place, index) if isinstance(base, list) else (STATE, place, "state", index)
    states = base if isinstance(base, list) else base.get("state") if isinstance(base, dict) else None
    state = dict(enumerate(states)).get(index) if isinstance(states, list) else (states or {}).get(index)
    if not isinstance(state, dict):  # no step was made yet
        return Group(weights, {}, {})
    values = {str(k): v for k, v in state.items() if not isinstance(v, Opaque)}
    return Group(weights, read.entries_at(*path), values)
