"""DeepSpeed checkpoints without pipeline: the model lies in ``mp_rank_00_model_states.pt``.

    DIR/latest
    DIR/<step>/mp_rank_00_model_states.pt       {"module": {key: tensor}, "optimizer": ..., ...}

Under ZeRO-3 it lies in pieces, in the files of ``remap.formats.deepspeed.zero.partitions``.

GPT-NeoX with ``pipe_parallel_size: 0`` names its keys ``sequential.N. ...`` there. Source: DeepSpeed
``runtime/engine.py`` (``_save_checkpoint``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from remap.errors import InputError, UsageError
from remap.expr import Expr
from remap.formats.base import Literal, OutFile, WriteOptions
from remap.formats.companions import companions, read_config
from remap.formats.deepspeed.names import (
    LATEST,
    has_model,
    layer_files,
    partition_files,
    rank_files,
    step_folders,
    step_name,
)
from remap.formats.deepspeed.pipeline import MODULE_ONLY, STEP
from remap.formats.deepspeed.zero.partitions import find_partitions, read_partitions
from remap.formats.deepspeed.zero.run import ZERO
from remap.formats.deepspeed.zero.view import describe, with_zero
from remap.formats.torch import file as torch_file
from remap.types import Catalog


class DeepSpeed:
    """The ``deepspeed`` format: see the module's docstring."""

    name = "deepspeed"
    title = "DeepSpeed checkpoint (module in mp_rank_XX)"

    def find(self, path: Path) -> Sequence[Path]:
        """Step folders with ``mp_rank_XX`` files, or those of ZeRO-3, and no layer files at ``path``."""
        return [f for f in step_folders(path) if has_model(f) and not layer_files(f)]

    def open(self, path: Path, *, at: str | None = None) -> Catalog:
        """Read the one rank's pickle, and the headers of ZeRO's files.

        at  ``zero`` for the fp32 weights of ZeRO, else a place in the file

        Raises InputError for several ranks, or without a module.
        """
        ranks = rank_files(path)
        if not ranks:
            return self._partitions(path)
        if len(ranks) > 1:
            raise InputError(
                f"the module is cut over {len(ranks)} tensor-parallel ranks, and how, the files do not say",
                where=path,
                problems=[p.name for p in ranks],
                remedy="merge them to one rank first",
            )
        read = torch_file.read(ranks[0], state_dict=False)
        if at in (None, ZERO) and read.plain("module") is None:
            raise InputError(
                "module is None: the weights of a pipeline run lie in layer_XX files, and none are here",
                where=ranks[0],
                remedy="fetch the layer_XX-model_YY-model_states.pt files of the same step",
            )
        fp32 = at == ZERO
        read = torch_file.read(ranks[0], at="module" if at is None or fp32 else at)
        catalog = Catalog(
            format=self.name,
            root=path,
            files=tuple(ranks),
            entries=read.entries,
            config=read_config(path.parent),
            opaque=tuple(read.opaque),
            extras=tuple(k for k in read.extras if k not in MODULE_ONLY),
            companions=companions(path.parent),
            peek=read.peek,
        )
        return with_zero(catalog, fp32=fp32)

    def _partitions(self, path: Path) -> Catalog:
        run = find_partitions(path)
        (model,) = run.models.values()
        catalog = Catalog(
            format=self.name,
            root=path,
            files=tuple(f.path for f in partition_files(path)),
            entries=read_partitions(run),
            config=read_config(path.parent),
            opaque=model.opaque,
            extras=tuple(str(k) for k in model.keys if k not in MODULE_ONLY),
            companions=companions(path.parent),
            peek=model.peek,
        )
        return describe(catalog, run)

    def lay_out(self, tensors: Mapping[str, Expr], source: Catalog, options: WriteOptions) -> list[OutFile]:
        """``mp_rank_00`` with the module, and ``latest`` last. Weights only."""
        if options.name is not None:
            raise UsageError(
                f"a DeepSpeed checkpoint is a folder, {options.name} is a file's name", remedy="name a folder"
            )
        step = step_name(options.tag, STEP)
        extras = {k: v for k, v in MODULE_ONLY.items() if k != "module"}
        rank = torch_file.emit(f"{step}/mp_rank_00_model_states.pt", tensors, extras, at="module")
        return [rank, OutFile(LATEST, (Literal(step.encode()),))]


FORMAT = DeepSpeed()
