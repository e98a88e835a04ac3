"""DeepSpeed pipeline checkpoints: a file a layer, the layer's number in the file's name.

    DIR/latest                                  the step's name
    DIR/<step>/layer_02-model_00-model_states.pt    {key within the layer: tensor}
    DIR/<step>/mp_rank_00_model_states.pt       everything but weights: ``module`` is None

The number becomes part of the key: ``attention.dense.weight`` of layer 2 is
``2.attention.dense.weight``. Gaps in the numbers are normal (layers that are plain functions have
no file). Source: DeepSpeed ``runtime/pipe/module.py`` (``save_state_dict``, ``load_state_dir``).

ZeRO optimizer files keep fp32 copies of the weights (``remap.formats.deepspeed.zero``): left beside converted
layer files, they bring the old weights back at the first optimizer step. Writing never leaves any.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from remap.errors import UsageError
from remap.expr import Expr
from remap.formats.base import Literal, OutFile, WriteOptions
from remap.formats.companions import companions, read_config
from remap.formats.deepspeed.degrees import layers_by_rank, read_folder
from remap.formats.deepspeed.likeness import extras_of, likeness, rank_files_of
from remap.formats.deepspeed.names import (
    LATEST,
    layer_files,
    rank_files,
    step_folders,
    step_name,
)
from remap.formats.deepspeed.neox import carried_configs, neox_config
from remap.formats.deepspeed.zero.run import ZERO
from remap.formats.deepspeed.zero.view import with_zero
from remap.formats.ranks import catalog_of_ranks, labelled
from remap.formats.torch import file as torch_file
from remap.formats.torch.state import TorchFile
from remap.types import Catalog, Entry

STEP = "global_step0"
"""Name of the step folder unless the user gives one: DeepSpeed's own name for step 0."""

_NUMBER = re.compile("0|[1-9][0-9]{0,5}")


class DeepSpeedPipeline:
    """The ``deepspeed-pipeline`` format: see the module's docstring."""

    name = "deepspeed-pipeline"
    title = "DeepSpeed pipeline layer files"

    def find(self, path: Path) -> Sequence[Path]:
        """Step folders with layer files at ``path``: a folder, its ``latest``, or a file of one."""
        return [folder for folder in step_folders(path) if layer_files(folder)]

    def open(self, path: Path, *, at: str | None = None) -> Catalog:
        """Read every layer file's pickle, no weights, and the headers of ZeRO's files.

        at  ``zero`` for the fp32 weights of ZeRO, else a place in the layer files

        Raises Damaged for files that do not belong together.
        """
        fp32 = at == ZERO
        layers = layers_by_rank(path)
        ranks = rank_files(path)
        first = torch_file.read(ranks[0], state_dict=False) if ranks else None
        read_folder(path, len(layers), ranks, first)
        read = [
            {i: torch_file.read(f, at=None if fp32 else at) for i, f in files.items()} for files in layers
        ]
        catalog = Catalog(
            format=self.name,
            root=path,
            files=tuple(sorted([*(f for files in layers for f in files.values()), *ranks])),
            entries={},
            config={**read_config(path.parent), **neox_config(path, first)},
            opaque=tuple(sorted({name for table in read for f in table.values() for name in f.opaque})),
            extras=extras_of(first),
            companions=companions(path.parent),
            warnings=tuple(_warnings(path, ranks, first)),
        )
        return with_zero(catalog_of_ranks([_table(files) for files in read], catalog), fp32=fp32)

    def lay_out(self, tensors: Mapping[str, Expr], source: Catalog, options: WriteOptions) -> list[OutFile]:
        """A layer file for every number, ``mp_rank_XX``, and ``latest`` last."""
        return self.lay_out_ranks([tensors], source, options)

    def lay_out_ranks(
        self, tables: Sequence[Mapping[str, Expr]], source: Catalog, options: WriteOptions
    ) -> list[OutFile]:
        """A layer file of every number and rank, ``mp_rank_XX`` of every rank and stage, ``latest``."""
        options.refuse_file("layer files need a folder")
        like = likeness(source, tables, options.stages, optimizer=options.optimizer)
        step = step_name(options.tag, like.folder.path.name if like.folder else STEP)
        stages = options.stages or (like.folder.pp if like.folder else 1)
        files: list[OutFile] = []
        for rank, table in enumerate(tables):
            layers = _by_layer(table)
            for i in sorted(layers):
                name = f"{step}/layer_{i:02d}-model_{rank:02d}-model_states.pt"
                several = rank if len(tables) > 1 else None
                files.append(labelled(torch_file.emit(name, layers[i]), f"{i}.", several))
        files += rank_files_of(step, like, tables, stages)
        if like.folder:
            files += carried_configs(like.folder.path, step, len(tables), stages)
        files.append(OutFile(LATEST, (Literal(step.encode()),), left=like.left(source)))
        return files


FORMAT = DeepSpeedPipeline()


def _table(files: Mapping[int, TorchFile]) -> dict[str, Entry]:
    """The tensors of one rank, the layer's number in front of their keys."""
    return {
        f"{i}.{key}": replace(entry, key=f"{i}.{key}")
        for i, file in files.items()
        for key, entry in file.entries.items()
    }


def _warnings(path: Path, ranks: list[Path], first: TorchFile | None) -> list[str]:
    warnings = []
    if first is None:
        warnings.append("no mp_rank_XX_model_states.pt: DeepSpeed's load_checkpoint needs one")
    else:
        if "module" in first.keys and first.plain("module") is not None:
            warnings.append(
                f"{first.path.name} holds a module of its own; a pipeline engine takes the layer files"
            )
        wanted = first.plain("mp_world_size") if "mp_world_size" in first.keys else len(ranks)
        if wanted != len(ranks):
            warnings.append(
                f"{first.path.name} was saved by {wanted} ranks, {len(ranks)} mp_rank files are here"
            )
    if not (path.parent / LATEST).is_file():
        warnings.append(f"no {LATEST} beside the step folder: DeepSpeed loads nothing unless given the tag")
    return warnings


def _by_layer(tensors: Mapping[str, Expr]) -> dict[int, dict[str, Expr]]:
    layers: dict[int, dict[str, Expr]] = {}
    wrong = []
    for key, expr in tensors.items():
        number, dot, rest = key.partition(".")
        if not (dot and rest and _NUMBER.fullmatch(number)):
            wrong.append(key)
            continue
        layers.setdefault(int(number), {})[rest] = expr
    if wrong:
        raise UsageError(
            "pipeline layer files need keys that begin with a layer's number, as 2.attention.dense.weight",
            problems=wrong,
            remedy="add the pack that gives them (gpt_neox/hf-to-neox, magma/from-hf), or use another --to",
        )
    return layers
