"""Writes what lies beside ``zero`` in a universal checkpoint: the model files, without weights.

They are in the likeness of the source's, for one tensor-parallel rank and as many pipeline stages as it has.
ZeRO-1 and 2 look for ``mp_rank_XX``, ZeRO-3 for ``zero_pp_rank_0_mp_rank_XX``: any stage can load them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from remap.expr import Expr
from remap.formats.base import OutFile
from remap.formats.deepspeed.likeness import OF_ONE_RANK, likeness, rank_files_of
from remap.formats.deepspeed.neox import carried_configs
from remap.formats.deepspeed.universal.native import Universal
from remap.formats.deepspeed.zero.overlay import TIED
from remap.formats.deepspeed.zero.run import Run
from remap.formats.torch.rebuild import edited, reassemble
from remap.formats.torch.state import TorchFile
from remap.types import Catalog

ZERO3 = "zero_pp_rank_0_"


def model_files(step: str, tensors: Mapping[str, Expr], source: Catalog) -> Iterator[OutFile]:
    """The model files in the folder ``step``, and the run's configuration where it has one there."""
    held = _models(source.native)
    if held:
        files = [_alike(f"{step}/mp_rank_{i:02d}_model_states.pt", m) for i, m in enumerate(held)]
        stages = len(files)
    else:
        like = likeness(source, [tensors], None, optimizer=False)
        stages = like.folder.pp if like.folder else 1
        files = rank_files_of(step, like, [tensors], stages)
    pipeline = all(k.partition(".")[0].isdigit() or TIED.fullmatch(k) for k in tensors)
    for file in files:
        yield replace(file, carries=False)
        if not pipeline:  # of which ZeRO-3 knows nothing
            yield replace(file, name=f"{step}/{ZERO3}{file.name.rpartition('/')[2]}", carries=False)
    if isinstance(source.native, (Run, Universal)):
        yield from carried_configs(source.root, step, 1, stages if pipeline else 0)


def _models(native: object) -> list[TorchFile]:
    """Model files that are to be taken as they are, for as many ranks."""
    if isinstance(native, Universal):
        return list(native.models)
    return [native.models[0]] if isinstance(native, Run) and native.stage == 3 else []


def _alike(name: str, model: TorchFile) -> OutFile:
    """``model`` without what it says of weights."""
    changed = edited(model.contents, {(k,): None for k in ("module", *OF_ONE_RANK)})
    return reassemble(model.contents, name, changed, ())
