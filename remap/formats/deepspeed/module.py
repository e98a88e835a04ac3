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
from remap.formats.deepspeed.degrees import read_folder
from remap.formats.deepspeed.likeness import MODULE_ONLY, extras_of, likeness, rank_files_of
from remap.formats.deepspeed.names import (
    LATEST,
    has_model,
    layer_files,
    partition_files,
    rank_files,
    step_folders,
    step_name,
)
from remap.formats.deepspeed.neox import carried_configs, neox_config
from remap.formats.deepspeed.pipeline import STEP
from remap.formats.deepspeed.zero.partitions import find_partitions, read_partitions
from remap.formats.deepspeed.zero.run import ZERO
from remap.formats.deepspeed.zero.view import describe, with_zero
from remap.formats.ranks import catalog_of_ranks, labelled
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
        """Read every rank's pickle, and the headers of ZeRO's files.

        at  ``zero`` for the fp32 weights of ZeRO, else a place in the file

        Raises InputError without a module, Damaged for ranks that do not belong together.
        """
        ranks = rank_files(path)
        if not ranks:
            return self._partitions(path)
        first = torch_file.read(ranks[0], state_dict=False)
        if at in (None, ZERO) and first.plain("module") is None:
            raise InputError(
                "module is None: the weights of a pipeline run lie in layer_XX files, and none are here",
                where=ranks[0],
                remedy="fetch the layer_XX-model_YY-model_states.pt files of the same step",
            )
        fp32 = at == ZERO
        place = "module" if at is None or fp32 else at
        read_folder(path, len(ranks), ranks, first)
        read = [torch_file.read(f, at=place) for f in ranks]
        catalog = Catalog(
            format=self.name,
            root=path,
            files=tuple(ranks),
            entries={},
            config={**read_config(path.parent), **neox_config(path, first)},
            opaque=tuple(sorted({name for f in read for name in f.opaque})),
            extras=extras_of(first),
            companions=companions(path.parent),
            peek=read[0].peek,
        )
        return with_zero(catalog_of_ranks([f.entries for f in read], catalog), fp32=fp32)

    def _partitions(self, path: Path) -> Catalog:
        run = find_partitions(path)
        model = run.models[0]
        ranks = [run.of_rank(r, len(run.shards)) for r in range(len(run.shards))]
        catalog = Catalog(
            format=self.name,
            root=path,
            files=tuple(f.path for f in partition_files(path)),
            entries={},
            config={**read_config(path.parent), **neox_config(path, model)},
            opaque=model.opaque,
            extras=tuple(str(k) for k in model.keys if k not in MODULE_ONLY),
            companions=companions(path.parent),
            peek=model.peek,
        )
        return describe(catalog_of_ranks([read_partitions(r) for r in ranks], catalog), run)

    def lay_out(self, tensors: Mapping[str, Expr], source: Catalog, options: WriteOptions) -> list[OutFile]:
        """``mp_rank_00`` with the module, and ``latest`` last."""
        return self.lay_out_ranks([tensors], source, options)

    def lay_out_ranks(
        self, tables: Sequence[Mapping[str, Expr]], source: Catalog, options: WriteOptions
    ) -> list[OutFile]:
        """``mp_rank_XX`` with the module of every rank, and ``latest`` last."""
        options.refuse_file("a DeepSpeed checkpoint is a folder")
        if (options.stages or 1) > 1:
            raise UsageError(
                f"{self.name} has no pipeline stages",
                remedy="leave out --pp, or write --to deepspeed-pipeline",
            )
        like = likeness(source, tables, 1, optimizer=options.optimizer)
        step = step_name(options.tag, like.folder.path.name if like.folder else STEP)
        files = rank_files_of(step, like, tables, 1, modules=tables)
        if len(tables) > 1:
            files = [labelled(f, "", r) for r, f in enumerate(files)]
        if like.folder:
            files += carried_configs(like.folder.path, step, len(tables), 0)
        files.append(OutFile(LATEST, (Literal(step.encode()),), left=like.left(source)))
        return files


FORMAT = DeepSpeed()
