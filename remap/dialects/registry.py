"""The dialects. Adding one is a module with a DIALECT, and its line here."""

from __future__ import annotations

from functools import cache
from importlib import import_module

from remap.dialects.base import Dialect
from remap.errors import UsageError

DIALECTS = {
    "peft": "peft:DIALECT",
    "peft-model": "peft_model:DIALECT",
    "kohya": "kohya:DIALECT",
    "diffusers": "diffusers:DIALECT",
    "megatron": "megatron:DIALECT",
    "magma": "magma:DIALECT",
    "magma-lora": "magma:LORA_DIALECT",
    "mlx": "mlx:DIALECT",
}
"""Name -> where it is. Of two that know equally many keys of a file, the first is taken."""


@cache
def get(name: str) -> Dialect:
    """The dialect of that name. Raises UsageError."""
    if name not in DIALECTS:
        raise UsageError(f"no dialect is called {name!r}", remedy=f"use one of {', '.join(DIALECTS)}")
    module, _, value = DIALECTS[name].partition(":")
    found: Dialect = getattr(import_module(f"remap.dialects.{module}"), value)
    return found


def dialects() -> tuple[Dialect, ...]:
    """All of them, in order."""
    return tuple(map(get, DIALECTS))
