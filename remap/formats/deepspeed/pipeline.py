"""DeepSpeed pipeline checkpoints: a file a layer, the layer's number in the file's name.

    DIR/latest                                  the step's name
    DIR/<step>/layer_02-model_00-model_states.pt    {key within the layer: tensor}
    DIR/<step>/mp_rank_00_model_states.pt       everything but weights: ``module`` is None

The number becomes part of the key: ``attention.dense.weight`` of layer 2 is
``2.attention.dense.weight``. Gaps in the numbers are normal (layers that are plain functions have
no file). Source: DeepSpeed ``runtime/pipe/module.py`` (``save_state_dict``, ``load_state_dir``).

ZeRO optimizer files keep fp32 copies of the weights: left beside converted layer files, they bring
the old weights back at the first optimizer step. Reading warns of them; writing never leaves any.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from remap.errors import Damaged, InputError, UsageError
from remap.expr import Expr
from remap.formats.base import Literal, OutFile, WriteOptions
from remap.formats.companions import companions, read_config
from remap.formats.deepspeed.names import (
    LATEST,
    layer_files,
    layer_of,
    optimizer_files,
    rank_files,
    step_folders,
    step_name,
)
from remap.formats.torch import file as torch_file
from remap.types import Catalog, Entry

STEP = "global_step0"
"""Name of the step folder unless the user gives one: DeepSpeed's own name for step 0."""

_NUMBER = re.compile("0|[1-9][0-9]{0,5}")

MODULE_ONLY = {
    "module": None,
    "dp_world_size": 1,
    "mp_world_size": 1,
    "global_steps": 0,
    "global_samples": 0,
    "skipped_steps": 0,
    "iteration": 0,
}
"""What DeepSpeed asks of ``mp_rank_00`` for ``load_checkpoint(load_module_only=True)``, and the step
that GPT-NeoX asks for."""


class DeepSpeedPipeline:
    """The ``deepspeed-pipeline`` format: see the module's docstring."""

    name = "deepspeed-pipeline"
    title = "DeepSpeed pipeline layer files"

    def find(self, path: Path) -> Sequence[Path]:
        """Step folders with layer files at ``path``: a folder, its ``latest``, or a file of one."""
        return [folder for folder in step_folders(path) if layer_files(folder)]

    def open(self, path: Path, *, at: str | None = None) -> Catalog:
        """Read every layer file's pickle, no weights. Raises InputError for several TP ranks."""
        files = layer_files(path)
        _check_one_rank(path, files)
        entries: dict[str, Entry] = {}
        opaque: set[str] = set()
        for file in files:
            layer = layer_of(file.name)
            assert layer is not None
            read = torch_file.read(file, at=at)
            opaque |= set(read.opaque)
            for key, entry in read.entries.items():
                entries[f"{layer.index}.{key}"] = replace(entry, key=f"{layer.index}.{key}")
        ranks = rank_files(path)
        return Catalog(
            format=self.name,
            root=path,
            files=tuple(sorted([*files, *ranks])),
            entries=entries,
            config=read_config(path.parent),
            opaque=tuple(sorted(opaque)),
            extras=tuple(_extras(ranks)),
            companions=companions(path.parent),
            warnings=tuple(_warnings(path, ranks)),
        )

    def lay_out(self, tensors: Mapping[str, Expr], source: Catalog, options: WriteOptions) -> list[OutFile]:
        """A layer file for every number, ``mp_rank_00``, and ``latest`` last. Weights only."""
        if options.name is not None:
            raise UsageError(
                f"layer files need a folder, {options.name} is a file's name", remedy="name a folder"
            )
        step = step_name(options.tag, STEP)
        layers = _by_layer(tensors)
        files = [
            torch_file.emit(f"{step}/layer_{i:02d}-model_00-model_states.pt", layers[i])
            for i in sorted(layers)
        ]
        files.append(torch_file.emit(f"{step}/mp_rank_00_model_states.pt", {}, MODULE_ONLY))
        files.append(OutFile(LATEST, (Literal(step.encode()),)))
        return files


FORMAT = DeepSpeedPipeline()


def _check_one_rank(path: Path, files: list[Path]) -> None:
    layers: dict[int, list[Path]] = {}
    for file in files:
        layer = layer_of(file.name)
        assert layer is not None
        layers.setdefault(layer.index, []).append(file)
    ranks = sorted({layer.rank for f in files if (layer := layer_of(f.name)) and layer.rank is not None})
    if len(ranks) > 1:
        raise InputError(
            f"the layers are cut over {len(ranks)} tensor-parallel ranks ({', '.join(map(str, ranks))}), "
            "and which tensors are cut, and how, the files do not say",
            where=path,
            remedy="merge them to one rank first; if a rank's files are left from another run, remove them",
        )
    doubled = [f"layer {i}: {', '.join(p.name for p in ps)}" for i, ps in layers.items() if len(ps) > 1]
    if doubled:
        raise Damaged(
            "a layer has more than one file; DeepSpeed would take them for tensor-parallel parts",
            where=path,
            problems=doubled,
            remedy="remove the files that do not belong to this checkpoint",
        )


def _extras(ranks: list[Path]) -> list[str]:
    """What the rank files hold that a fresh one does not: optimizer, arguments, random states."""
    if not ranks:
        return []
    read = torch_file.read(ranks[0], state_dict=False)
    names = [k for k in read.keys if isinstance(k, str) and k not in MODULE_ONLY]
    return [k for k in names if read.plain(k) not in (None, [], {})]


def _warnings(path: Path, ranks: list[Path]) -> list[str]:
    warnings = []
    stale = optimizer_files(path)
    if stale:
        warnings.append(
            f"{len(stale)} ZeRO optimizer files ({stale[0].name}, ...) hold fp32 copies of the weights; "
            "beside changed layer files they bring the old weights back at the first step. remap does not "
            "carry them along"
        )
    if not ranks:
        warnings.append("no mp_rank_XX_model_states.pt: DeepSpeed's load_checkpoint needs one")
    for file in ranks[:1]:
        read = torch_file.read(file, state_dict=False)
        if read.plain("module") is not None:
            warnings.append(f"{file.name} holds a module of its own; a pipeline engine takes the layer files")
        try:
            wanted = read.plain("mp_world_size")
        except KeyError:
            continue
        if wanted != len(ranks):
            warnings.append(f"{file.name} was saved by {wanted} ranks, {len(ranks)} mp_rank files are here")
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
