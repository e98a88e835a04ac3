"""PEFT's ``set_peft_model_state_dict``, which ``PeftModel.from_pretrained`` and ``load_adapter`` call.

It renames an adapter's keys and loads them with strict=False, the base model's weights all missing. Here the
adapter's own tensors are the target, and what PEFT hands to torch is the source, by PEFT's names for it.
Source: PEFT src/peft/utils/save_and_load.py.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from remap.audits.target import Target
from remap.integrations.watching.patches import Patch
from remap.integrations.watching.torch_state import collecting, given, specs, torch_says
from remap.integrations.watching.watch import Load, caller, seen, watching

if TYPE_CHECKING:
    from torch import nn


class _Adapter:
    """The one load into the model that PEFT makes."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self.state: dict[str, Any] | None = None
        self.result: object = None

    def takes(self, module: nn.Module) -> bool:
        return module is self._model and self.state is None

    def add(self, module: nn.Module, state: Mapping[str, Any], strict: bool, result: object) -> None:
        self.state, self.result = dict(state), result


def _wrap(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def set_peft_model_state_dict(
        model: Any, peft_model_state_dict: Any, adapter_name: str = "default", *args: Any, **kwargs: Any
    ) -> Any:
        if not watching():
            return original(model, peft_model_state_dict, adapter_name, *args, **kwargs)
        adapter = _Adapter(model)
        before = dict(model.state_dict())
        own = _own(model, before, adapter_name)
        try:
            with collecting(adapter):
                return original(model, peft_model_state_dict, adapter_name, *args, **kwargs)
        finally:
            name = f"{type(model).__name__}, adapter {adapter_name}"
            seen(_load(adapter, dict(peft_model_state_dict), before, own, name))

    return set_peft_model_state_dict


def _own(model: Any, state: Mapping[str, Any], adapter: str) -> dict[str, Any]:
    """What PEFT would save of this adapter, by the model's names; by PEFT's for prompts, which lie outside
    of the state dict."""
    from peft import get_peft_model_state_dict

    saved = get_peft_model_state_dict(
        model, state_dict=dict(state), adapter_name=adapter, save_embedding_layers=False
    )
    there = {id(v) for v in saved.values()}
    return {k: v for k, v in state.items() if id(v) in there} or dict(saved)


def _load(
    adapter: _Adapter, asked: dict[str, Any], state: Mapping[str, Any], own: dict[str, Any], name: str
) -> Load:
    source = f"adapter at {caller()}"
    if adapter.state is None or not own.keys() & state.keys():
        return Load(source, specs(asked), Target(name, specs(own)))
    wanted = own | {k: state[k] for k in adapter.state if k in state}
    target = Target(name, specs(wanted))
    missing, unexpected = torch_says(adapter.result)
    if missing is None:
        return Load(source, specs(adapter.state), target)
    ours = [k for k in missing if k in wanted]
    return Load(source, given(adapter.state, target.specs, ours, unexpected), target)


PATCHES = [Patch("peft.utils.save_and_load", "", "set_peft_model_state_dict", _wrap)]
