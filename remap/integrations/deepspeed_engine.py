"""Loading any checkpoint into a DeepSpeed pipeline, renamed on the way: no second copy of it is written.

DeepSpeed refuses a custom load function under pipeline parallelism, and asks a checkpoint engine for the
content of each layer's file. This one makes that content up:

    source ──> plan ──> audit against all stages ──> policy ──> load("layer_05-...") -> 5.* of the plan

    report = load_checkpoint(engine, "pythia", ["magma/from-hf"], policy="magma")

or, where the training code has the call to ``load_checkpoint`` itself:

    with RemapCheckpointEngine(engine, "pythia", ["magma/from-hf"], policy="magma") as remapped:
        engine.load_checkpoint(remapped.folder, load_module_only=True, load_module_strict=False)

``folder`` is a temporary one, of empty files: DeepSpeed looks for names before it asks for content. Every
rank audits the whole pipeline from headers, so that all come to the same verdict and nobody waits for a rank
that gave up. A stage reads its own layers only, a layer at a time. Saving is left to the engine's own
checkpoint engine.

Source: DeepSpeed runtime/pipe/engine.py (``load_module_state_dict``), runtime/state_dict_factory.py,
runtime/checkpoint_engine.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import TYPE_CHECKING, Any

import torch
from deepspeed.runtime.checkpoint_engine.checkpoint_engine import CheckpointEngine
from torch import distributed

from remap.audits.policy import Policy
from remap.audits.report import Report
from remap.checkpoint import Checkpoint
from remap.errors import RemapError, UsageError
from remap.expr import Expr
from remap.formats.deepspeed.likeness import MODULE_ONLY
from remap.formats.deepspeed.names import LATEST, layer_of, rank_of
from remap.formats.deepspeed.pipeline import STEP
from remap.integrations.deepspeed_stage import joined, layers_of, stage_target
from remap.integrations.torch_loading import examine
from remap.integrations.torch_transfer import value
from remap.integrations.verdict import failure

if TYPE_CHECKING:
    from remap.opening import Source


def load_checkpoint(
    engine: Any,
    source: Source,
    rules: Iterable[str | Path] = (),
    *,
    policy: str | Path | Policy | None = None,
    baseline: str | Path | None = None,
    inverse: bool = False,
    params: Mapping[str, str] | None = None,
    again: Iterable[str] = (),
    at: str | None = None,
    dtype: str | None = None,
) -> Report:
    """Load ``source`` into a ``PipelineEngine``, weights only. To be called on every rank.

    dtype  ``None``: types must agree; ``"model"``: floats are cast to the model's types

    The other arguments are those of ``remap.audit``. Gives the report on the whole pipeline. Raises
    AuditFailed on every rank, nothing loaded, where the policy fails it.
    """
    with RemapCheckpointEngine(
        engine,
        source,
        rules,
        policy=policy,
        baseline=baseline,
        inverse=inverse,
        params=params,
        again=again,
        at=at,
        dtype=dtype,
    ) as remapped:
        path, _ = engine.load_checkpoint(
            remapped.folder,
            load_module_only=True,
            load_module_strict=False,
            load_optimizer_states=False,
            load_lr_scheduler_states=False,
        )
    if path is None:
        raise UsageError("DeepSpeed loaded nothing", where=remapped.folder)
    return remapped.report


class RemapCheckpointEngine(CheckpointEngine):  # type: ignore[misc]  # DeepSpeed has no types
    """See the module's docstring. A context manager: while it is on, the engine loads through it.

    report  the audit of the whole pipeline
    folder  what to give ``engine.load_checkpoint``; there while it is on
    """

    def __init__(
        self,
        engine: Any,
        source: Source,
        rules: Iterable[str | Path] = (),
        *,
        policy: str | Path | Policy | None = None,
        baseline: str | Path | None = None,
        inverse: bool = False,
        params: Mapping[str, str] | None = None,
        again: Iterable[str] = (),
        at: str | None = None,
        dtype: str | None = None,
    ) -> None:
        super().__init__()
        self.name = type(self).__name__
        _check(engine, dtype)
        self._engine = engine
        self._saves = engine.checkpoint_engine
        self._scratch: TemporaryDirectory[str] | None = None
        target = joined(_gathered(stage_target(engine.module)))
        try:
            plan, self.report, loaded = examine(
                target,
                source,
                rules,
                policy=policy,
                baseline=baseline,
                inverse=inverse,
                params=params,
                again=again,
                at=at,
                dtype=dtype,
            )
            if not self.report.passed:
                raise failure([self.report], "nothing was loaded")
        except (RemapError, OSError) as e:
            _all_or_none(e)
            raise
        _all_or_none(None)
        self._checkpoint = Checkpoint(plan.catalog)
        self._layers: dict[int, dict[str, Expr]] = {}
        for key, expr in loaded.items():
            number, _, name = key.partition(".")
            self._layers.setdefault(int(number), {})[name] = expr

    def __enter__(self) -> RemapCheckpointEngine:
        self._scratch = TemporaryDirectory(prefix="remap-")
        self.folder = self._scratch.name
        step = Path(self.folder) / STEP
        step.mkdir()
        (Path(self.folder) / LATEST).write_text(STEP)
        (step / "mp_rank_00_model_states.pt").touch()
        for number, _ in layers_of(self._engine.module):
            (step / f"layer_{number:02d}-model_00-model_states.pt").touch()
        self._engine.checkpoint_engine = self
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        self._engine.checkpoint_engine = self._saves
        if self._scratch is not None:
            self._scratch.cleanup()

    def load(self, path: str, map_location: object = None) -> Any:
        """The content of a layer's file, its tensors made when they are asked for; of others what their own
        engine gives."""
        file = Path(path)
        if self._scratch is None or Path(self._scratch.name) not in file.parents:
            return self._saves.load(path, map_location=map_location)
        layer = layer_of(file.name)
        if layer is None:
            assert rank_of(file.name) is not None
            return dict(MODULE_ONLY)
        return _Layer(self._checkpoint, self._layers.get(layer.index, {}))

    def save(self, state_dict: Any, path: str) -> Any:
        """As the engine's own does; all that follows, too."""
        return self._saves.save(state_dict, path)

    def create(self, info: Any) -> Any:
        return self._saves.create(info)

    def commit(self, info: Any) -> Any:
        return self._saves.commit(info)

    def makedirs(self, path: str, exist_ok: bool = False) -> Any:
        return self._saves.makedirs(path, exist_ok=exist_ok)

    def is_data_parallel_writer(self, dp_rank: int) -> Any:
        return self._saves.is_data_parallel_writer(dp_rank)

    def is_decoupled(self) -> Any:
        return self._saves.is_decoupled()

    def set_commit_info(self, info: Any) -> Any:
        return self._saves.set_commit_info(info)

    def get_commit_info(self) -> Any:
        return self._saves.get_commit_info()

    def cleanup(self) -> Any:
        return self._saves.cleanup()

    def preserves_storage_sharing(self) -> Any:
        return self._saves.preserves_storage_sharing()


class _Layer(Mapping[str, torch.Tensor]):
    """A layer's state dict. DeepSpeed opens each file twice, the first time to look at its keys; ``specs``
    is for a watch."""

    def __init__(self, checkpoint: Checkpoint, exprs: Mapping[str, Expr]) -> None:
        self.specs = {name: e.spec for name, e in exprs.items()}
        self._checkpoint = checkpoint
        self._exprs = exprs

    def __getitem__(self, name: str) -> torch.Tensor:
        return value(self._checkpoint, self._exprs[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self._exprs)

    def __len__(self) -> int:
        return len(self._exprs)

    def __contains__(self, name: object) -> bool:
        return name in self._exprs


def _check(engine: Any, dtype: str | None) -> None:
    module = engine.module
    if not hasattr(module, "load_state_dir"):
        raise UsageError(
            f"the engine's module is {type(module).__name__}, no PipelineModule",
            remedy="load before deepspeed.initialize: remap.load_into(model, source, rules, policy=...)",
        )
    parts = module._grid.get_slice_parallel_world_size()
    if parts > 1:
        raise UsageError(
            f"the layers are cut over {parts} tensor-parallel ranks, and a plan gives whole tensors",
            remedy=f"write layer files in {parts} parts first, and load those",
        )
    if dtype not in (None, "model"):
        raise UsageError(
            f"dtype={dtype!r}: DeepSpeed copies into the tensors that it has, whose type does not change",
            remedy='give dtype="model", or none',
        )


def _gathered(value: Any) -> list[Any]:
    """The value of every rank, in their order."""
    if not distributed.is_initialized() or distributed.get_world_size() == 1:
        return [value]
    found: list[Any] = [None] * distributed.get_world_size()
    distributed.all_gather_object(found, value)
    return found


def _all_or_none(error: Exception | None) -> None:
    """Where another rank gave up, so does this one."""
    said = _gathered(None if error is None else str(error))
    if error is None and any(said):
        raise UsageError(
            "nothing was loaded: other ranks gave up",
            problems=[f"rank {n}: {text.splitlines()[0]}" for n, text in enumerate(said) if text],
            remedy="is the checkpoint the same on all machines?",
        )
