"""DeepSpeed checkpoints without pipeline: the model lies in ``mp_rank_00_model_states.pt``.

    DIR/latest
    DIR/<step>/mp_rank_00_model_states.pt       {"module": {key: tensor}, "optimizer": ..., ...}

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
    layer_files,
    optimizer_files,
    rank_files,
    step_folders,
    step_name,
)
from remap.formats.deepspeed.pipeline import MODULE_ONLY, STEP
from remap.formats.torch import file as torch_file
from remap.types import Catalog


class DeepSpeed:
    """The ``deepspeed`` format: see the module's docstring."""

    name = "deepspeed"
    title = "DeepSpeed checkpoint (module in mp_rank_XX)"

    def find(self, path: Path) -> Sequence[Path]:
        """Step folders with ``mp_rank_XX`` files and no layer files at ``path``."""
        return [f for f in step_folders(path) if rank_files(f) and not layer_files(f)]

    def open(self, path: Path, *, at: str | None = None) -> Catalog:
        """Read the one rank's pickle. Raises InputError for several ranks, or without a module."""
        ranks = rank_files(path)
        if len(ranks) > 1:
            raise InputError(
                f"the module is cut over {len(ranks)} tensor-parallel ranks, and how, the files do not say",
                where=path,
                problems=[p.name for p in ranks],
                remedy="merge them to one rank first",
            )
        read = torch_file.read(ranks[0], state_dict=False)
        if at is None and read.plain("module") is None:
            raise InputError(
                "module is None: the weights of a pipeline run lie in layer_XX files, and none are here",
                where=ranks[0],
                remedy="fetch the layer_XX-model_YY-model_states.pt files of the same step",
            )
        read = torch_file.read(ranks[0], at=at or "module")
        stale = optimizer_files(path)
        warning = (
            f"{len(stale)} ZeRO optimizer files hold fp32 copies of the weights; they are not carried along"
        )
        return Catalog(
            format=self.name,
            root=path,
            files=tuple(ranks),
            entries=read.entries,
            config=read_config(path.parent),
            opaque=tuple(read.opaque),
            extras=tuple(k for k in read.extras if k not in MODULE_ONLY),
            companions=companions(path.parent),
            warnings=(warning,) if stale else (),
            peek=read.peek,
            native=read,
        )

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
