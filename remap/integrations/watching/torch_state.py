"""``nn.Module.load_state_dict(strict=False)``, and what collects several of them into one load.

What torch itself calls missing and unexpected decides, since a hook may have renamed keys on the way; where
torch raises, the names do. A copy into a tensor on the meta device does nothing, and torch finds nothing
amiss, strict or not: such a tensor is missing here.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from remap.dtypes import dtype
from remap.integrations.watching.patches import Patch
from remap.integrations.watching.watch import Load, caller, seen, seen_strict, watching
from remap.types import TensorSpec

if TYPE_CHECKING:
    from torch import nn


class Collector(Protocol):
    """What puts together the loads that a library makes of one."""

    def takes(self, module: nn.Module) -> bool:
        """Is a load into ``module`` a part of it?"""
        ...

    def add(self, module: nn.Module, state: Mapping[str, Any], strict: bool, result: object) -> None:
        """A part was loaded; ``result`` is torch's answer, None where it raised."""
        ...


class _Here(threading.local):
    def __init__(self) -> None:
        self.collectors: list[Collector] = []


_here = _Here()


class collecting:  # noqa: N801  # reads as a statement
    """While it is on, in this thread, parts go to ``collector``."""

    def __init__(self, collector: Collector) -> None:
        self._collector = collector

    def __enter__(self) -> None:
        _here.collectors.append(self._collector)

    def __exit__(self, *_: object) -> None:
        _here.collectors.pop()


class _Nothing:
    """Takes everything, and says nothing of it."""

    def takes(self, module: nn.Module) -> bool:
        return True

    def add(self, module: nn.Module, state: Mapping[str, Any], strict: bool, result: object) -> None:
        pass


def quietly() -> collecting:
    """While it is on, in this thread, no watch sees loads: they are parts of one that was audited."""
    return collecting(_Nothing())


def _wrap(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def load_state_dict(
        self: nn.Module, state_dict: Mapping[str, Any], strict: bool = True, *args: Any, **kwargs: Any
    ) -> Any:
        def call() -> Any:
            return original(self, state_dict, strict, *args, **kwargs)

        return observed(self, state_dict, strict, call) if watching() else call()

    return load_state_dict


def observed(module: nn.Module, state: Mapping[str, Any], strict: bool, call: Callable[[], Any]) -> Any:
    """Make the load, and say what it was."""
    from remap.integrations.torch_model import target_of

    collector = next((c for c in reversed(_here.collectors) if c.takes(module)), None)
    target = None if strict or collector else target_of(module)
    result = None
    try:
        result = call()
    except (RuntimeError, TypeError):  # sizes differ: torch says so, strict or not
        if target is not None:
            seen(Load(f"state dict at {caller()}", specs(state), target))
        raise
    finally:
        if collector is not None:
            collector.add(module, state, strict, result)
    nowhere = [] if collector else _on_meta(module, state)
    if target is not None or nowhere:
        wanted = target or target_of(module)
        offered = given(state, wanted.specs, *torch_says(result))
        kept = {k: s for k, s in offered.items() if k not in set(nowhere)}
        seen(Load(f"state dict at {caller()}", kept, wanted, (_NOWHERE,) if nowhere else ()))
    elif collector is None:
        seen_strict()
    return result


_NOWHERE = (
    "the model is on the meta device, and a copy into it does nothing: load_state_dict(..., assign=True), or "
    "model.to_empty(device=...) before"
)


def _on_meta(module: nn.Module, state: Mapping[str, Any]) -> list[str]:
    """Keys of ``state`` whose tensors in the module have no memory after the load."""
    there = module.state_dict(keep_vars=True)
    return [k for k in state if getattr(there.get(k), "is_meta", False)]


def torch_says(result: object) -> tuple[Collection[str] | None, Collection[str] | None]:
    """Missing and unexpected keys; None where an override of the method does not say."""
    return getattr(result, "missing_keys", None), getattr(result, "unexpected_keys", None)


def given(
    state: Mapping[str, Any],
    wanted: Mapping[str, TensorSpec],
    missing: Collection[str] | None,
    unexpected: Collection[str] | None,
) -> dict[str, TensorSpec]:
    """What was loaded, by the target's names, and what was left over.

    A key of the target that ``state`` has not was loaded all the same where torch does not miss it and a
    hook took some other key of ``state``, which torch does not find unexpected either.
    """
    named = specs(state)
    if missing is None or unexpected is None:
        return named
    renamed = [k for k in named if k not in wanted and k not in set(unexpected)]
    absent = set(missing) if renamed else {k for k in wanted if k not in named} | set(missing)
    offered = {k: named.get(k, s) for k, s in wanted.items() if k not in absent}
    return offered | {k: named.get(k, NOTHING) for k in unexpected}


NOTHING = TensorSpec(dtype("uint8"), (0,))
"""What stands for something that is no tensor."""


def specs(state: Mapping[str, Any]) -> dict[str, TensorSpec]:
    """The specs of a state dict; extra state that is no tensor has 0 bytes. A lazy one may know its own."""
    import torch

    known = getattr(state, "specs", None)
    if isinstance(known, dict):
        return known
    return {
        k: TensorSpec(dtype(str(v.dtype)), tuple(v.shape)) if isinstance(v, torch.Tensor) else NOTHING
        for k, v in state.items()
    }


def prefixed(parts: Iterable[tuple[str, Mapping[str, TensorSpec]]]) -> dict[str, TensorSpec]:
    """Specs of several modules as those of one."""
    return {f"{prefix}{k}": s for prefix, found in parts for k, s in found.items()}


PATCHES = [Patch("torch.nn.modules.module", "Module", "load_state_dict", _wrap)]
