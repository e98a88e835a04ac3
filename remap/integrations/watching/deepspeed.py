"""DeepSpeed's ``PipelineModule.load_state_dir(strict=False)`` and ``DeepSpeedEngine.load_checkpoint``.

A pipeline loads layer by layer; its loads are one, the stage's, with the layers' numbers in the keys. An
engine that finds no checkpoint says so in a warning, returns (None, None) and trains from nothing: that is a
load of nothing here. Without a pipeline the engine calls the module's own ``load_state_dict``.
Source: DeepSpeed runtime/pipe/module.py, runtime/engine.py.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from remap.integrations.watching.patches import Patch
from remap.integrations.watching.torch_state import (
    collecting,
    given,
    prefixed,
    specs,
    torch_says,
)
from remap.integrations.watching.watch import Load, seen, seen_strict, watching
from remap.types import TensorSpec

if TYPE_CHECKING:
    from torch import nn


class _Stage:
    """The layers that a stage loads, one after the other."""

    def __init__(self, module: Any, folder: str) -> None:
        from remap.integrations.deepspeed_stage import layers_of, stage_target

        self._folder = folder
        self._waiting = layers_of(module)
        self._target = stage_target(module)
        self._parts: list[tuple[str, Mapping[str, TensorSpec]]] = []

    def takes(self, module: nn.Module) -> bool:
        return any(layer is module for _, layer in self._waiting)

    def add(self, module: nn.Module, state: Mapping[str, Any], strict: bool, result: object) -> None:
        index = next(n for n, (_, layer) in enumerate(self._waiting) if layer is module)
        prefix = f"{self._waiting.pop(index)[0]}."
        wanted = {k.removeprefix(prefix): s for k, s in self._target.specs.items() if k.startswith(prefix)}
        found = specs(state) if result is None else given(state, wanted, *torch_says(result))
        self._parts.append((prefix, found))

    @property
    def load(self) -> Load:
        return Load(self._folder, prefixed(self._parts), self._target)


def _wrap_folder(original: Callable[..., Any]) -> Callable[..., Any]:
    signature = inspect.signature(original)

    @functools.wraps(original)
    def load_state_dir(self: Any, *args: Any, **kwargs: Any) -> Any:
        asked = signature.bind(self, *args, **kwargs)
        asked.apply_defaults()
        if not watching():
            return original(self, *args, **kwargs)
        stage = _Stage(self, str(asked.arguments["load_dir"]))
        try:
            with collecting(stage):
                return original(self, *args, **kwargs)
        finally:
            if asked.arguments["strict"]:
                seen_strict()
            else:
                seen(stage.load)

    return load_state_dir


def _wrap_engine(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def load_checkpoint(self: Any, load_dir: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(self, load_dir, *args, **kwargs)
        if watching() and isinstance(result, tuple) and result[0] is None:
            from remap.integrations.torch_model import target_of

            seen(Load(str(load_dir), {}, target_of(self.module)))
        return result

    return load_checkpoint


PATCHES = [
    Patch("deepspeed.runtime.pipe.module", "PipelineModule", "load_state_dir", _wrap_folder),
    Patch("deepspeed.runtime.engine", "DeepSpeedEngine", "load_checkpoint", _wrap_engine),
]
