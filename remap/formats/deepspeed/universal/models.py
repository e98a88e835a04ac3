"""Writes what lies beside ``zero`` in a universal checkpoint: the model files, without weights.

They are in the likeness of the source's, for so many tensor-parallel ranks and pipeline stages.
ZeRO-1 and 2 look for ``mp_rank_XX``, ZeRO-3 for ``zero_pp_rank_0_mp_rank_XX``: any stage can load them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from remap.expr import Expr
from remap.formats.base import OutFile
from remap.formats.deepspeed.degrees import ranks_of
from remap.formats.deepspeed.likeness import (
    OF_ONE_RANK,
    degrees_of,
    is_step,
    likeness,
    rank_files_of,
    stated,
)
from remap.formats.deepspeed.neox import carried_configs
from remap.formats.deepspeed.universal.native import Universal
from remap.formats.deepspeed.zero.overlay import TIED
from remap.formats.deepspeed.zero.run import Run
from remap.formats.torch.state import TorchFile
from remap.formats.torch.writing.rebuild import edited, reassemble
from remap.types import Catalog

ZERO3 = "zero_pp_rank_0_"


def model_files(
    step: str, tables: Sequence[Mapping[str, Expr]], source: Catalog, stages: int | None
) -> Iterator[OutFile]:
    """The model files in the folder ``step``, and the run's configuration where it has one there.

    tables  what every rank will have of the tensors
    stages  None for as many as the source has
    """
    ranks, held = len(tables), _models(source.native)
    if held:
        stages = stages or (1 if isinstance(source.native, Run) else max(len(held) // ranks_of(held[0]), 1))
        facts = degrees_of(tables, stages)
        files = [
            _alike(f"{step}/mp_rank_{i:02d}_model_states.pt", held[i * len(held) // (ranks * stages)], facts)
            for i in range(ranks * stages)
        ]
    else:
        like = likeness(source, tables, None, optimizer=False)
        stages = stages or (like.folder.pp if like.folder else 1)
        files = rank_files_of(step, like, tables, stages)
    pipeline = all(k.partition(".")[0].isdigit() or TIED.fullmatch(k) for k in tables[0])
    for file in files:
        yield replace(file, carries=False)
        if not pipeline:  # of which ZeRO-3 knows nothing
            yield replace(file, name=f"{step}/{ZERO3}{file.name.rpartition('/')[2]}", carries=False)
    if is_step(source):
        yield from carried_configs(source.root, step, ranks, stages if pipeline else 0)


def _models(native: object) -> list[TorchFile]:
    """Model files that are to be taken as they are, for as many ranks."""
    if isinstance(native, Universal):
        return list(native.models)
    return list(native.models.values()) if isinstance(native, Run) and native.stage == 3 else []


def _alike(name: str, model: TorchFile, facts: Mapping[tuple[str, ...], object]) -> OutFile:
    """``model`` without what it says of weights; what it says of degrees is true."""
    values: dict[tuple[str, ...], object] = {(k,): None for k in ("module", *OF_ONE_RANK)}
    changed = edited(model.contents, values | stated(model, facts))
    return reassemble(model.contents, name, changed, ())
