"""An ``nn.Module`` as the target of an audit: what it would load, which are buffers, which are tied.

A model is built on the meta device: no memory, no initialisation.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import nn

from remap.audits.target import Target
from remap.dtypes import dtype
from remap.errors import UsageError
from remap.types import TensorSpec

FAULTS = (
    ArithmeticError,
    AttributeError,
    LookupError,
    NameError,
    OSError,
    RuntimeError,
    TypeError,
    ValueError,
)
"""What code that builds a model may raise; NotImplementedError (an op without meta kernel) is a
RuntimeError."""


def target_of(model: nn.Module, name: str = "") -> Target:
    """What ``model.load_state_dict`` looks for. Its weights may lie anywhere, on the meta device, too.

    Extra state is a target of 0 bytes where it is no tensor.
    """
    state: dict[str, Any] = model.state_dict(keep_vars=True)
    buffers = frozenset(k for k, _ in model.named_buffers(remove_duplicate=False))
    first: dict[int, str] = {}
    ties = {}
    for key, value in state.items():
        if isinstance(value, nn.Parameter) and (kept := first.setdefault(id(value), key)) != key:
            ties[key] = kept
    specs = {k: _spec(v) for k, v in state.items()}
    to_dict = getattr(getattr(model, "config", None), "to_dict", None)
    plain = to_dict() if callable(to_dict) else {}
    return Target(name or type(model).__name__, specs, buffers & specs.keys(), ties, config=plain)


def _spec(value: object) -> TensorSpec:
    if isinstance(value, torch.Tensor):
        return TensorSpec(dtype(str(value.dtype)), tuple(value.shape))
    return TensorSpec(dtype("uint8"), (0,))


def open_function(text: str) -> Target:
    """``package.module:function`` or ``path.py:function``: called without arguments under the meta device.

    This runs the user's own code. Raises UsageError where there is no such function, it fails, or returns no
    module.
    """
    place, _, name = text.rpartition(":")
    function = _function(place, name, text)
    try:
        with torch.device("meta"):
            model = function()
    except FAULTS as e:
        raise UsageError(f"building the model failed: {type(e).__name__}: {e}", where=text) from e
    if not isinstance(model, nn.Module):
        raise UsageError(f"it returned {type(model).__name__}, no torch.nn.Module", where=text)
    return target_of(model, text)


def _function(place: str, name: str, text: str) -> Callable[[], object]:
    module = _from_file(Path(place)) if place.endswith(".py") else _from_name(place, text)
    found = module
    for step in name.split("."):
        found = getattr(found, step, None)  # type: ignore[assignment]
    if not callable(found):
        raise UsageError(f"{place} has no function {name!r}", where=text)
    return found


def _from_name(place: str, text: str) -> ModuleType:
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        return importlib.import_module(place)
    except ImportError as e:
        raise UsageError(
            f"can't be imported: {e}", where=text, remedy="is its package installed, or here?"
        ) from e


def _from_file(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise UsageError("no such Python file", where=path)
    module = importlib.util.module_from_spec(spec)
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    spec.loader.exec_module(module)
    return module
