"""PEFT: the keys of a model that it has wrapped, adapters and base together.

    base_model.model.h.0.attn.c_attn.lora_A.default.weight    the adapter's name stands behind the layer's
    base_model.model.h.0.attn.c_attn.base_layer.weight        what the adapter wraps
    base_model.model.lm_head.modules_to_save.default.weight   trained in full; original_module is the base's
    base_model.model.wte.token_adapter.base_layer.weight      trainable tokens
    prompt_encoder.default.embedding.weight                   prompt learning: the base is base_model.*

Sources: as for ``remap.dialects.peft``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from remap.dialects.base import AdapterTensor
from remap.dialects.peft import (
    BARE,
    BUFFERS,
    ENDS,
    LAYERS,
    NESTED,
    SAVED,
    TOKENS,
    last_layer,
    tensor_at,
)
from remap.dialects.plain import joined
from remap.errors import UsageError

PROMPT = "prompt_encoder"
INNER = "base_layer"
_TRAINED = ("weight", "bias", INNER)
"""Parameters of the base that were trained along: they have no adapter's name."""
UNSAID = "shira_indices"
"""In PEFT's file only: the model holds them outside of its state dict."""
_AROUND = {SAVED: ("original_module",), TOKENS: (TOKENS, "base_layer")}


@dataclass(frozen=True)
class PeftModel:
    """The ``peft-model`` dialect: keys of a model that PEFT has wrapped."""

    name = "peft-model"
    title = "a model wrapped by PEFT, adapters and base together"
    method = "any"

    def parse(self, key: str) -> AdapterTensor | None:
        segments = key.split(".")
        if segments[0] == PROMPT and len(segments) > 2:
            return AdapterTensor(key, "", ".".join((PROMPT, *segments[2:])), segments[1])
        at = last_layer(segments, LAYERS | BUFFERS | {SAVED})
        if at is None or at + 1 == len(segments):
            return None
        adapter, inner = segments[at + 1], tuple(segments[at + 2 :])
        if adapter in ("weight", "bias") or (inner not in ENDS and segments[at] not in NESTED):
            return None
        if segments[at] in BARE:
            inner = ()
        return tensor_at(key, segments, at, inner, adapter)

    def spell(self, tensor: AdapterTensor) -> str:
        head, *inner = tensor.leaf.split(".")
        if head == UNSAID:
            raise UsageError(
                "a model's state dict has no place for SHiRA's indices",
                where=tensor.key,
                remedy="let PEFT load it: PeftModel.from_pretrained",
            )
        if head in BARE:
            inner = ["weight"]
        if head == TOKENS:
            head, *inner = f"{head}.{inner[0]}", *inner[1:]
        if head in _TRAINED:
            return joined(tensor.wrapper, tensor.module, tensor.leaf)
        return joined(tensor.wrapper, tensor.module, head, tensor.adapter, *inner)

    def around(
        self, tensors: Iterable[AdapterTensor], keys: Iterable[str] = ()
    ) -> Mapping[str, tuple[str, ...]]:
        found: dict[str, tuple[str, ...]] = {}
        for t in tensors:
            head = t.leaf.partition(".")[0]
            if t.module or head == PROMPT:
                found[""] = tuple(t.wrapper.split(".")) if t.wrapper else ("base_model",) * (head == PROMPT)
            if not t.module or head in _TRAINED:
                continue
            owner, count = depth(t.module)
            wrap = (*_AROUND.get(head, (INNER,)), *(INNER,) * count)
            found[owner] = max(found.get(owner, ()), wrap, key=len)
        return found


DIALECT = PeftModel()


def depth(module: str) -> tuple[str, int]:
    """The base's module, and how often it is wrapped around this place: once for each of the bare parameters
    (stacked experts) that have factors."""
    owner, count = module, 0
    while owner.endswith(f".{INNER}"):
        owner, count = owner.removesuffix(f".{INNER}"), count + 1
    return owner, count
