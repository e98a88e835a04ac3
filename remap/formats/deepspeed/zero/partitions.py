"""ZeRO-3: the model lies in pieces, too; its own files hold placeholders, buffers and frozen weights.

    zero_pp_rank_{d}_mp_rank_{m}_model_states.pt
        module                    {key: empty tensor, or the value of a buffer}
        param_shapes              a dict for every sub-group of the optimizer
        frozen_param_shapes, frozen_param_fragments    cut like the weights, in the training type

In: a step folder with such files. Out: every tensor of the model, in the order of ``module``. Source:
DeepSpeed ``runtime/engine.py`` (``_get_zero_frozen_param_attributes``), ``utils/zero_to_fp32.py``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from remap.errors import Damaged, InputError
from remap.formats.deepspeed.names import partition_files
from remap.formats.deepspeed.zero.cut import Flat, Shapes
from remap.formats.deepspeed.zero.overlay import SHARED
from remap.formats.deepspeed.zero.run import FROZEN_SHAPES, Run, find_run, read_shapes
from remap.formats.torch import file as torch_file
from remap.types import Entry

MODULE = "module"
FROZEN = "frozen_param_fragments"
BUFFERS = "buffer_names"


def find_partitions(folder: Path) -> Run:
    """The shards of a ZeRO-3 folder, one for each model file. Raises InputError, Damaged."""
    files = partition_files(folder)
    run = find_run(folder)
    if run is None:
        raise InputError(
            "the model files of ZeRO-3 hold placeholders: the weights lie in *_optim_states.pt, none of "
            "which are here",
            where=folder,
            remedy="fetch the zero_pp_rank_*_optim_states.pt files of the same step",
        )
    wanted = {(s.file.rank, s.file.shard) for held in run.shards.values() for s in held}
    there = {(f.rank, f.shard) for f in files}
    odd = [f"zero_pp_rank_{d}_mp_rank_{m:02d}: no model file" for m, d in sorted(wanted - there)]
    odd += [f"zero_pp_rank_{d}_mp_rank_{m:02d}: no optimizer file" for m, d in sorted(there - wanted)]
    if odd:
        raise Damaged(
            "every rank has a model file and an optimizer file",
            where=folder,
            problems=odd,
            remedy="fetch those that are missing, or remove those of another run",
        )
    return run


def read_partitions(run: Run) -> dict[str, Entry]:
    """Every tensor of the model, in its order; of one tensor-parallel rank. Raises Damaged for one that is
    nowhere."""
    (model,) = run.models.values()
    module = model.entries_at(MODULE)
    held = {**_frozen(run), **run.everything.fp32}
    buffers: Sequence[str] = (model.plain(BUFFERS) if BUFFERS in model.keys else None) or ()  # type: ignore[assignment]
    shared: Mapping[str, str] = (model.plain(SHARED) if SHARED in model.keys else None) or {}  # type: ignore[assignment]
    out: dict[str, Entry] = {}
    lost = []
    for key in dict.fromkeys([*module, *held, *shared]):
        found = held.get(key) or held.get(shared.get(key, ""))
        stored = module.get(key)
        if found is None and stored is not None and (stored.spec.numel or key in buffers):
            found = stored
        if found is None:
            lost.append(key)
        else:
            out[key] = Entry(key, found.spec, found.location)
    if lost:
        raise Damaged(
            "weights of the model are in no file",
            where=model.path,
            problems=lost,
            remedy="save the checkpoint again without exclude_frozen_parameters",
        )
    return out


def _frozen(run: Run) -> dict[str, Entry]:
    """Weights that no optimizer has: a fragment in the model file of every rank."""
    (model,) = run.models.values()
    shapes: Shapes = next(iter(read_shapes(model, FROZEN_SHAPES)), {})
    if not shapes:
        return {}
    files = [f.path for f in partition_files(run.folder) if f.rank in run.shards]
    reads = [torch_file.read(p, state_dict=False) for p in files]
    fragments = [r.entries_at(FROZEN) if FROZEN in r.keys else {} for r in reads]
    missing = [
        f"{r.path.name}: {k}"
        for r, held in zip(reads, fragments, strict=True)
        for k in shapes
        if k not in held
    ]
    if missing:
        raise Damaged("fragments of frozen weights are missing", where=run.folder, problems=missing)
    return {k: Flat([held[k] for held in fragments]).apart(k, shape, 0) for k, shape in shapes.items()}
