"""An ``nn.Module`` as the target of an audit: what it would load, which are buffers, which are tied.

A model is built on the meta device: no memory, no initialisation.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import sysconfig
import traceback
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

import torch
from torch import nn

from remap.audits.target import Target
from remap.dtypes import dtype
from remap.errors import UsageError
from remap.types import TensorSpec

T = TypeVar("T")


def target_of(model: nn.Module, name: str = "") -> Target:
    """What ``model.load_state_dict`` looks for. Its weights may lie anywhere, on the meta device, too.

    Extra state is a target of 0 bytes where it is no tensor. Raises UsageError for parameters that get their
    shapes at the first forward pass only.
    """
    state: dict[str, Any] = model.state_dict(keep_vars=True)
    lazy = [k for k, v in state.items() if nn.parameter.is_lazy(v)]
    if lazy:
        raise UsageError(
            "parameters of the model have no shape yet",
            where=name or type(model).__name__,
            problems=lazy,
            remedy="run the model once on an input, then load",
        )
    buffers = frozenset(k for k, _ in model.named_buffers(remove_duplicate=False))
    first: dict[object, str] = {}
    ties = {}
    for key, value in state.items():
        if isinstance(value, nn.Parameter) and (kept := first.setdefault(memory(value), key)) != key:
            ties[key] = kept
    specs = {k: _spec(v) for k, v in state.items()}
    to_dict = getattr(getattr(model, "config", None), "to_dict", None)
    plain = to_dict() if callable(to_dict) else {}
    return Target(name or type(model).__name__, specs, buffers & specs.keys(), ties, config=plain)


def memory(tensor: torch.Tensor) -> object:
    """What two tensors share that are one in memory: the object, or, where one is a view of the other (as
    ``nn.Parameter(other.data)``), the bytes."""
    plain = type(tensor) in (torch.Tensor, nn.Parameter) and tensor.layout is torch.strided
    if tensor.is_meta or not plain or not tensor.numel():
        return id(tensor)
    return tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride()


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
    model = built(function, text)
    if not isinstance(model, nn.Module):
        raise UsageError(f"it returned {type(model).__name__}, no torch.nn.Module", where=text)
    return target_of(model, text)


def built(build: Callable[[], T], text: str, what: str = "building the model failed") -> T:
    """What ``build`` returns under the meta device. What it prints goes to stderr: a report may go to stdout.

    Raises UsageError for whatever it raises, an exit too: an audit that was not made is none that passed.
    """
    with torch.device("meta"):
        return _guarded(build, what, text)


def _guarded(call: Callable[[], T], what: str, text: str, remedy: str = "") -> T:
    try:
        with redirect_stdout(sys.stderr):
            return call()
    except (Exception, SystemExit) as e:
        said = f"{what}: {type(e).__name__}: {' '.join(str(e).split())}{_place(e)}"
        raise UsageError(said, where=text, remedy=remedy or None) from e


def _place(error: BaseException) -> str:
    """The user's line that led to ``error``; nothing where it is in no file of theirs."""
    others = (*sysconfig.get_paths().values(), str(Path(__file__).parents[1]), "<")
    frames = traceback.extract_tb(error.__traceback__)
    theirs = [f for f in frames if not f.filename.startswith(others)]
    return f" ({theirs[-1].filename}:{theirs[-1].lineno})" if theirs else ""


def _function(place: str, name: str, text: str) -> Callable[[], object]:
    module = _from_file(Path(place), text) if place.endswith(".py") else _from_name(place, text)
    found = module
    for step in name.split("."):
        found = getattr(found, step, None)  # type: ignore[assignment]
    if not callable(found):
        raise UsageError(f"{place} has no function {name!r}", where=text)
    return found


def _from_name(place: str, text: str) -> ModuleType:
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    remedy = "is its package installed, or here?"
    return _guarded(lambda: importlib.import_module(place), "can't be imported", text, remedy)


def _from_file(path: Path, text: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise UsageError("no such Python file", where=path)
    module = importlib.util.module_from_spec(spec)
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    loader = spec.loader
    _guarded(lambda: loader.exec_module(module), "can't be imported", text)
    return module
