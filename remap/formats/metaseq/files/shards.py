"""One file of a metaseq checkpoint, its headers read: little is kept of it, as there may be a thousand.

In: a path. Out: a Shard. The pickle's nodes are let go; whoever writes a file in the likeness of this one
reads it again. Source: metaseq ``trainer.py`` (``state_dict``), fairscale
``fully_sharded_data_parallel.py`` (``local_state_dict``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from remap.errors import Damaged, InputError
from remap.formats.metaseq.files.config import Config, read_config
from remap.formats.metaseq.files.metadata import Metadata, read_metadata
from remap.formats.torch import file as torch_file
from remap.formats.torch.container import read_archive
from remap.formats.torch.state import TorchFile
from remap.pickles.graph import Opaque, lookup, mapping_pairs, plain
from remap.types import Entry

Place = tuple[str, ...]

MODEL: Place = ("model",)
TREES: tuple[Place, ...] = (MODEL, ("extra_state", "ema"), ("extra_state", "ema_fp32_params"))
"""Where a file holds state dicts: the model, and running averages of it, which are sharded like it."""

OPTIMIZER = "last_optimizer_state"
METADATA = "shard_metadata"
MARKS = (METADATA, "optimizer_history", "extra_state", "cfg", "args")
"""What lies beside ``model`` in a file of metaseq's trainer; one of them is enough in a file whose name says
that it is one of several, one of the first two in any other."""


@dataclass(frozen=True)
class State:
    """The optimizer's part of a file.

    slots    index -> name of a slot -> tensor; what is no tensor is not here
    values   what is no tensor, dotted name -> how it is written: steps, settings of groups, the loss scale
    groups   the indices of every parameter group
    id_map   index -> index of its unit, where the state is unflattened (fairscale's gather)
    """

    slots: Mapping[int, Mapping[str, Entry]]
    values: Mapping[str, str]
    groups: tuple[tuple[int, ...], ...]
    id_map: Mapping[int, int | None] | None

    @property
    def indices(self) -> tuple[int, ...]:
        """Every index, in order."""
        return tuple(sorted(i for g in self.groups for i in g))


@dataclass(frozen=True)
class Shard:
    """What one file holds.

    trees      place of a state dict -> its tensors
    metadata   None where there is none
    optimizer  None where there is none, -1 where the file says that shard 0 has it
    updates    number of optimizer steps, None where it does not say
    config     what the saved configuration says of parts and shards
    extras     what else is in it, by its top-level name
    """

    path: Path
    trees: Mapping[Place, Mapping[str, Entry]]
    metadata: Metadata | None
    optimizer: State | int | None
    updates: int | None
    config: Config
    extras: tuple[str, ...]
    opaque: tuple[str, ...]


def is_metaseq(path: Path, *, numbered: bool) -> bool:
    """True where a torch file is one of metaseq's trainer, or of fairscale with ``shard_metadata``.

    numbered  True where its name says that it is one of several

    A file that can't be read is none here; opening it says what is wrong.
    """
    marks = MARKS if numbered else MARKS[:2]
    try:
        with path.open("rb") as f:
            zipped = f.read(4) == b"PK\x03\x04"
        if zipped:  # a glance at the bytes spares other people's files a second reading
            stream = read_archive(path).read("data.pkl")
            if not any(m.encode() in stream for m in marks):
                return False
        keys = torch_file.read(path, state_dict=False, keep_suspicious=True).keys
    except (InputError, KeyError):
        return numbered
    return "model" in keys and any(m in keys for m in marks)


def read_shard(path: Path, like: Shard | None = None) -> Shard:
    """Read the headers of one file; ``like`` is another shard, whose metadata is shared where it is equal.

    Raises InputError.
    """
    file = torch_file.read(path, at="model", state_dict=False)
    trees = {place: entries for place in TREES if (entries := file.entries_at(*place))}
    return Shard(
        path,
        {MODEL: {}, **trees},
        _metadata(file, like),
        _optimizer(file, like),
        _updates(file),
        read_config(file),
        tuple(str(k) for k in file.keys if k != "model"),
        file.opaque,
    )


def _metadata(file: TorchFile, like: Shard | None) -> Metadata | None:
    if METADATA not in file.keys:
        return None
    value = file.plain(METADATA)
    if value is None:
        return None
    read = read_metadata(value, f"{file.path}: {METADATA}")
    return read if like is None or like.metadata is None else read.sharing(like.metadata)


def _optimizer(file: TorchFile, like: Shard | None) -> State | int | None:
    found, node = lookup(file.contents.walked.root, OPTIMIZER)
    if not found or node is None:
        return None
    if isinstance(node, int):
        return node
    held = lookup(node, "state")[1]
    if mapping_pairs(held) is None:
        raise Damaged("holds no optimizer state", where=f"{file.path}: {OPTIMIZER}")
    indices = [k for k, _ in mapping_pairs(held) or () if type(k) is int]
    slots = {i: file.entries_at(OPTIMIZER, "state", i) for i in indices}
    try:
        groups = file.plain(OPTIMIZER, "param_groups")
    except KeyError:
        groups = [{"params": indices}]
    id_map = file.plain(OPTIMIZER, "param_id_map") if lookup(node, "param_id_map")[0] else None
    values: Mapping[str, str] = dict(_values(plain(node), ()))
    if like is not None and isinstance(like.optimizer, State) and like.optimizer.values == values:
        values = like.optimizer.values
    return State(slots, values, tuple(_groups(groups, file.path)), id_map)  # type: ignore[arg-type]


def _values(value: object, path: Place) -> Iterator[tuple[str, str]]:
    """What lies in nested dicts and lists of dicts, tensors and objects left out."""
    inside: Iterable[tuple[object, object]] = ()
    if isinstance(value, dict):
        inside = value.items()
    elif isinstance(value, list) and value and isinstance(value[0], dict):
        inside = enumerate(value)
    elif not isinstance(value, Opaque):
        yield ".".join(path), repr(value)
    for key, inner in inside:
        yield from _values(inner, (*path, str(key)))


def _groups(groups: object, path: Path) -> Iterator[tuple[int, ...]]:
    for group in groups if isinstance(groups, list) else ():
        params = group.get("params") if isinstance(group, dict) else None
        if not isinstance(params, list) or not all(type(p) is int for p in params):
            raise Damaged("param_groups does not list the parameters by number", where=f"{path}: {OPTIMIZER}")
        yield tuple(params)


def _updates(file: TorchFile) -> int | None:
    try:
        history = file.plain("optimizer_history")
    except KeyError:
        return None
    last = history[-1] if isinstance(history, list) and history else {}
    number = last.get("num_updates") if isinstance(last, dict) else None
    return number if type(number) is int else None
