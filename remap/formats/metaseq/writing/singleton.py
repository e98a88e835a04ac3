"""One file that holds everything, unflattened: what any checkpoint becomes for metaseq.

In: tensors by name, and the catalog that they come from. Out: an OutFile, in the likeness of a file of the
source where that is one of metaseq's, else with no more around it than metaseq asks for. The optimizer's
state of another format is written by parameter, as fairscale's gather has it, with the ``shard_metadata``
that says in which order parameters count: ``remap reshard`` cuts it from there.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import replace

from remap.errors import InputError
from remap.expr import Expr, Take
from remap.formats.base import OutFile, TensorBytes
from remap.formats.follow import PARAMS, Followed, follow
from remap.formats.metaseq.checkpoint import Checkpoint
from remap.formats.metaseq.description import in_metaseq
from remap.formats.metaseq.files.metadata import Metadata
from remap.formats.metaseq.files.shards import METADATA, MODEL, OPTIMIZER
from remap.formats.metaseq.optimizer.agree import WITHOUT
from remap.formats.metaseq.partition import load_partition
from remap.formats.metaseq.writing.file import Content, facts, file_key, write_like
from remap.formats.metaseq.writing.metadata_nodes import fresh
from remap.formats.metaseq.writing.units import units_of
from remap.formats.torch.file import read
from remap.formats.torch.state import TorchFile
from remap.formats.torch.writing.emit import emit
from remap.types import Catalog, Location


def singleton(
    name: str, tensors: Mapping[str, Expr], source: Catalog, like: Checkpoint | None, *, optimizer: bool
) -> OutFile:
    """The file ``name`` that holds ``tensors`` as the model: in the likeness of part 0, shard 0 of ``like``,
    or of the one file of the source, or fresh. Raises InputError, UsageError where the optimizer's state
    can't come along."""
    natives = source.native if isinstance(source.native, tuple) else ()
    file: TorchFile | None = None
    if like is not None:
        file = read(like.parts[0].shards[0].path, state_dict=False, at="model")
    elif len(natives) == 1 and isinstance(natives[0], TorchFile) and "cfg" in natives[0].keys:
        file = natives[0]
    if file is not None:
        out = write_like(file, name, Content({MODEL: tensors}, facts=facts(1, 1, 0, 0, flat=False)))
        return _renamed(out, name, file)
    state = source.optimizer() if optimizer and source.optimizer else None
    if state is None:
        return emit(name, tensors, _around(source, 0), at="model")
    followed = follow(state, tensors)
    around = _around(source, _updates(followed))
    metadata = _metadata(followed, tensors, source)
    numbers = {n: i for i, n in enumerate(metadata.names)}
    around |= {OPTIMIZER: _optimizer(followed, metadata, numbers), METADATA: fresh(metadata, {})}
    return replace(emit(name, tensors, around, at="model"), kept=(state.name,))


def _around(source: Catalog, updates: int) -> dict[str, object]:
    """What metaseq looks for beside the model, as of a run that begins after ``updates``. Source: metaseq
    ``checkpoint_utils.py`` (``_upgrade_state_dict``), ``trainer.py`` (``load_checkpoint``)."""
    return {
        "cfg": _minimal(source.config),
        "criterion": None,
        "optimizer_history": [{"lr_scheduler_state": {"best": None}, "num_updates": updates}],
        "task_state": {},
        "extra_state": {"train_iterator": {"epoch": 1, "iterations_in_epoch": 0}},
    }


def _updates(state: Followed) -> int:
    """The number of steps that were taken: that of the first weight, or of a group; 0 where none says."""
    held = [{**state.values.get(k, {}), **state.tensors.get(k, {})} for k in state.keys]
    found = next((s["step"] for s in (*held, *state.groups) if "step" in s), 0)
    if isinstance(found, (int, float)):
        return int(found)
    if (
        isinstance(found, Take)
        and isinstance(place := found.entry.location, Location)
        and found.spec.numel == 1
    ):
        code = {"float32": "<f", "float64": "<d", "int64": "<q", "int32": "<i"}.get(found.spec.dtype.name)
        with place.file.open("rb") as f:
            f.seek(place.offset)
            return int(struct.unpack(code, f.read(found.spec.nbytes))[0]) if code else 0
    return 0


def _optimizer(state: Followed, metadata: Metadata, numbers: Mapping[str, int]) -> dict[str, object]:
    """The state by parameter. A unit whose parameters are in no group is frozen, and has no number."""
    slots = {n: {**state.values.get(n, {}), **state.tensors.get(n, {})} for n in numbers}
    trained = [f for f in metadata.flats.values() if not set(state.keys).isdisjoint(f.shapes)]
    units = {n: i for i, flat in enumerate(trained) for n in flat.shapes}
    return {
        "state": {numbers[n]: held for n, held in slots.items() if held},
        "param_groups": [
            {**g, PARAMS: [numbers[str(n)] for n in g[PARAMS]]}  # type: ignore[attr-defined]
            for g in state.groups
        ],
        **state.rest,
        "param_id_map": {i: units.get(n) for n, i in numbers.items()},
        "uncollected_local_ids": [],
    }


def _metadata(state: Followed, tensors: Mapping[str, Expr], source: Catalog) -> Metadata:
    """The order in which parameters count. A projection without a state of its own is the embedding."""
    partition = load_partition()
    unknown = [n for n in tensors if partition.of(n) is None]
    if unknown:
        raise InputError(
            "metaseq's optimizers count parameters, and in what order these come its partition does not say",
            where=source.root,
            problems=unknown,
            remedy=f"name them as metaseq does (-r opt/hf-to-metaseq), or {WITHOUT}",
        )
    ties = {n: s.like for n in tensors if (s := partition.of(n)) is not None and s.tied}
    tied = any(n not in state.keys and like in state.keys for n, like in ties.items())
    metadata = units_of(tensors, partition, tied, source.root)
    strange = [n for n in state.keys if n not in metadata.names]
    if strange:
        raise InputError(
            "the optimizer has a state for what is no parameter of metaseq's",
            where=source.root,
            problems=strange,
            remedy=WITHOUT,
        )
    return metadata


def _renamed(out: OutFile, name: str, file: TorchFile) -> OutFile:
    """The same file, its tensors called by their keys alone; it has no state of the optimizer."""
    prefix = file_key(name, *MODEL, "")
    parts = tuple(
        TensorBytes(p.key[len(prefix) :], p.expr) if isinstance(p, TensorBytes) else p for p in out.parts
    )
    return replace(out, parts=parts, left=tuple(n for n in (OPTIMIZER, METADATA) if n in file.keys))


def _minimal(config: Mapping[str, object]) -> dict[str, object]:
    """A configuration for a model that metaseq never saw, from that of transformers."""
    model = {"_name": "transformer_lm_megatron", "arch": "transformer_lm_megatron", "model_parallel_size": 1}
    return {
        "common": {"model_parallel_size": 1},
        "distributed_training": {
            "distributed_world_size": 1,
            "distributed_rank": 0,
            "use_sharded_state": False,
        },
        "checkpoint": {"checkpoint_suffix": "-model_part-0"},
        "model": {**model, "decoder_learned_pos": True, "no_scale_embedding": True, **in_metaseq(config)},
    }
