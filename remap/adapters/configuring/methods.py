"""PEFT's methods, recognised by their tensors: what the shapes tell of each one's configuration.

    method(adapter) -> Method; its told(adapter) -> {"r": 4, ...}, its asks: ("lora_alpha",)

Source: peft 0.21 ``tuners/*/config.py`` and ``tuners/*/layer.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import isqrt

from remap.adapters.model import Adapter
from remap.dialects.base import AdapterTensor

Told = Callable[[Adapter], Mapping[str, object]]


@dataclass(frozen=True)
class Method:
    """One method.

    name   ``peft_type``
    mark   beginning of the leaf that tells it
    told   what the shapes tell
    asks   settings that nothing in the tensors tells
    """

    name: str
    mark: str
    told: Told
    asks: tuple[str, ...] = ()


def method(adapter: Adapter) -> Method | None:
    """The method of an adapter's tensors; None for one whose tensors don't tell (prompts)."""
    heads = {t.leaf for t in adapter.tensors}
    return next((m for m in METHODS if any(h.startswith(m.mark) for h in heads)), None)


def _first(adapter: Adapter, mark: str) -> tuple[int, ...]:
    """The shape of the first tensor whose leaf begins so; () where there is none."""
    found = next((t for t in adapter.tensors if t.leaf.startswith(mark)), None)
    return adapter.spec(found).shape if found else ()


def _with(adapter: Adapter, mark: str) -> list[AdapterTensor]:
    return [t for t in adapter.tensors if t.leaf.startswith(mark)]


def _adalora(adapter: Adapter) -> Mapping[str, object]:
    rank = _first(adapter, "lora_A")[0]
    return {"init_r": rank, "target_r": rank, "total_step": 1, "tinit": 0, "tfinal": 0}


def _ia3(adapter: Adapter) -> Mapping[str, object]:
    ends = {t.module for t in _with(adapter, "ia3_l") if adapter.spec(t).shape[0] == 1}
    return {"feedforward_modules": sorted(ends)}


def _oft(adapter: Adapter) -> Mapping[str, object]:
    """Skew matrices by the elements above their diagonal: n (n - 1) / 2 of them."""
    above = _first(adapter, "oft_R")[-1]
    return {"r": 0, "oft_block_size": (1 + isqrt(1 + 8 * above)) // 2}


def _boft(adapter: Adapter) -> Mapping[str, object]:
    factors, _, size, _ = _first(adapter, "boft_R")
    return {"boft_block_size": size, "boft_block_num": 0, "boft_n_butterfly_factor": factors}


def _vera(adapter: Adapter) -> Mapping[str, object]:
    return {"r": _first(adapter, "vera_lambda_d")[0], "save_projection": bool(_with(adapter, "vera_A"))}


def _lora(adapter: Adapter) -> Mapping[str, object]:
    return {"use_dora": bool(_with(adapter, "lora_magnitude_vector"))}


METHODS = (
    Method("ADALORA", "lora_E", _adalora, ("lora_alpha",)),
    Method("LOHA", "hada_", lambda a: {"r": _first(a, "hada_w1_b")[0]}, ("alpha",)),
    Method("LOKR", "lokr_", lambda a: {}, ("r", "alpha", "decompose_factor")),
    Method("IA3", "ia3_l", _ia3),
    Method("OFT", "oft_R", _oft),
    Method("BOFT", "boft_R", _boft),
    Method("VERA", "vera_lambda_", _vera),
    Method("LN_TUNING", "ln_tuning_layers", lambda a: {}),
    Method("LORA", "lora_", _lora, ("lora_alpha",)),
    Method("TRAINABLE_TOKENS", "trainable_tokens_delta", lambda a: {}, ("token_indices",)),
)
"""In the order in which they are tried: AdaLoRA has LoRA's tensors, too."""
