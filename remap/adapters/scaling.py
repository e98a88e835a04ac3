"""Rank and alpha of every module, as PEFT works them out: what the product of the factors is multiplied by.

    scale = alpha / r, or alpha / sqrt(r) with use_rslora

A file that keeps ``alpha`` beside the factors (kohya) has the word; then ``alpha_pattern`` and
``lora_alpha`` of the configuration; then the rank, as diffusers' loaders take it. Sources: peft 0.21
``tuners/lora/layer.py`` (``update_layer``), ``utils/other.py`` (``get_pattern_key``).
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from math import sqrt

import regex

from remap.adapters.model import Adapter
from remap.errors import Damaged, UsageError
from remap.stream.whole import whole
from remap.types import Entry

_MAGMA_ALPHA = 1.0
"""What MAGMA's LoRA has: ``ParallelLinearPEFT(alpha=1.0)``."""
_CODES = {
    "float64": "d",
    "float32": "f",
    "float16": "e",
    "int64": "q",
    "int32": "i",
    "int16": "h",
    "int8": "b",
}
_A = ("lora_A.weight", "lora_A", "lora_embedding_A")


def rank(adapter: Adapter, module: str) -> int | None:
    """Rows of A; None for a module without one."""
    found = adapter.of(module)
    tensor = next((found[leaf] for leaf in _A if leaf in found), None)
    shape = adapter.expr(tensor).spec.shape if tensor else ()
    return shape[0] if shape else None


def alpha(adapter: Adapter, module: str) -> float | None:
    """Alpha as the file or the configuration says; None where neither does."""
    tensor = adapter.of(module).get("alpha")
    if tensor is not None:
        return number(adapter.catalog.entries[tensor.key])
    if adapter.dialect == "magma-lora":
        return _MAGMA_ALPHA
    said = by_pattern(adapter.config.get("alpha_pattern"), module)
    said = adapter.config.get("lora_alpha") if said is None else said
    return float(said) if isinstance(said, (int, float)) else None


def scale(adapter: Adapter, module: str) -> float:
    """What B @ A is multiplied by. Raises UsageError for a module without a rank."""
    r, a = rank(adapter, module), alpha(adapter, module)
    if not r:
        raise UsageError("it has no factor A, or an empty one", where=module)
    if a is None:
        return 1.0
    return a / sqrt(r) if adapter.config.get("use_rslora") else a / r


def effective(adapter: Adapter, module: str) -> float:
    """Alpha for a loader that divides it by the rank."""
    r, said = rank(adapter, module), alpha(adapter, module)
    if r is None:  # LoHa, LoKr: what was said, for their loader does the same with it
        return 1.0 if said is None else said
    if said is not None and not adapter.config.get("use_rslora"):
        return said
    return scale(adapter, module) * r


def by_pattern(patterns: object, module: str) -> object:
    """The value of the first pattern that matches the module's path, or its end; None for none."""
    for pattern, value in patterns.items() if isinstance(patterns, Mapping) else ():
        if matches(rf"(.*\.)?({pattern})$", module):
            return value
    return None


def matches(pattern: str, module: str) -> regex.Match[str] | None:
    """A regular expression of a configuration on a module's path, from its beginning. Raises Damaged."""
    try:
        found: regex.Match[str] | None = regex.match(pattern, module, timeout=1)
    except (regex.error, TimeoutError) as e:
        raise Damaged(f"the pattern {pattern!r} of adapter_config.json is no pattern: {e}") from None
    return found


def number(entry: Entry) -> float:
    """The value of a tensor of one element. Raises Damaged."""
    name = entry.spec.dtype.name
    if entry.spec.numel != 1 or name not in (*_CODES, "bfloat16"):
        raise Damaged(f"alpha is one number, this is {entry.spec}", where=entry.key)
    data = bytes(whole(entry))
    if name == "bfloat16":
        return float(struct.unpack("<f", b"\0\0" + data)[0])
    return float(struct.unpack(f"<{_CODES[name]}", data)[0])
