"""transformers' ``PreTrainedModel.from_pretrained`` and ``load_adapter``: never strict, by design.

It renames, joins and fills in on its own, so what it loaded is what it says it did
(``output_loading_info=True``): missing, unexpected and mismatched keys. What it hides from everybody
(``_keys_to_ignore_on_load_missing`` and ``_unexpected``) is hidden here, too.
Source: transformers src/transformers/modeling_utils.py.
"""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from remap.audits.target import Target
from remap.errors import RemapError
from remap.formats import registry
from remap.formats.keylist import UNKNOWN
from remap.integrations.watching.patches import Patch
from remap.integrations.watching.watch import Load, caller, seen, watching
from remap.types import TensorSpec

ASKED = "output_loading_info"


class _Here(threading.local):
    """What transformers said of the base model, and what that was, for each ``from_pretrained`` running."""

    def __init__(self) -> None:
        self.said: list[tuple[Mapping[str, Any], Target] | None] = []


_here = _Here()


def _wrap(original: Any) -> Any:
    function = original.__func__

    @functools.wraps(function)
    def from_pretrained(cls: Any, name: Any, *args: Any, **kwargs: Any) -> Any:
        if not watching():
            return function(cls, name, *args, **kwargs)
        wanted = kwargs.pop(ASKED, False)
        _here.said.append(None)
        try:
            model, info = function(cls, name, *args, **{**kwargs, ASKED: True})
        finally:
            said = _here.said.pop()
        about, target = said or (info, _target(model))
        place = Path(str(name)) / str(kwargs.get("subfolder") or "")
        seen(Load(str(name), _offered(target, about, place), target))
        return (model, info) if wanted else model

    return classmethod(from_pretrained)


def _wrap_finalize(original: Any) -> Any:
    """transformers 5 forgets what it said of the base model where the folder is an adapter's."""
    function = original.__func__

    @functools.wraps(function)
    def _finalize_model_loading(model: Any, *args: Any, **kwargs: Any) -> Any:
        info = function(model, *args, **kwargs)
        if _here.said:
            _here.said[-1] = info.to_dict(), _target(model)
        return info

    return staticmethod(_finalize_model_loading)


def _wrap_adapter(original: Callable[..., Any]) -> Callable[..., Any]:
    """transformers 5 loads adapters by itself; 4 does it through PEFT, and returns nothing."""
    signature = inspect.signature(original)

    @functools.wraps(original)
    def load_adapter(self: Any, *args: Any, **kwargs: Any) -> Any:
        info = original(self, *args, **kwargs)
        if watching() and hasattr(info, "to_dict"):
            asked = signature.bind(self, *args, **kwargs).arguments
            name = asked.get("adapter_name") or "default"
            folder = str(asked.get("peft_model_id") or f"adapter at {caller()}")
            whole = _target(self)
            own = {k: s for k, s in whole.specs.items() if name in k.split(".")}
            target = Target(f"{whole.name}, adapter {name}", own)
            seen(Load(folder, _offered(target, info.to_dict(), Path(folder)), target))
        return info

    return load_adapter


def _target(model: Any) -> Target:
    from remap.integrations.torch_model import target_of

    return target_of(model)


def _offered(target: Target, info: Mapping[str, Any], place: Path) -> dict[str, TensorSpec]:
    mismatched = {m[0]: m[1] for m in info["mismatched_keys"]}
    absent = {*info["missing_keys"], *mismatched}
    offered = {k: s for k, s in target.specs.items() if k not in absent}
    for key, shape in mismatched.items():
        offered[key] = TensorSpec(target.specs[key].dtype, tuple(shape))
    there = _specs(place) if info["unexpected_keys"] else {}
    # One UNKNOWN makes it a comparison of names: not where shapes are known to be wrong.
    unknown = replace(UNKNOWN) if mismatched else UNKNOWN
    return offered | {k: there.get(k, unknown) for k in sorted(info["unexpected_keys"])}


def _specs(place: Path) -> dict[str, TensorSpec]:
    """What the folder holds, where it is one of this machine; {} where it can't be known."""
    if not place.is_dir():
        return {}
    try:
        return {k: e.spec for k, e in registry.open_catalog(place).entries.items()}
    except RemapError:
        return {}


PATCHES = [
    Patch("transformers.modeling_utils", "PreTrainedModel", "from_pretrained", _wrap),
    Patch("transformers.modeling_utils", "PreTrainedModel", "_finalize_model_loading", _wrap_finalize),
    Patch("transformers.integrations.peft", "PeftAdapterMixin", "load_adapter", _wrap_adapter),
]
