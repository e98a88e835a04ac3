"""An op -> how it stands in a pack, ``{name: arguments}``: the way back of ``registry``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from remap.ops.arithmetic import Num
from remap.ops.base import Op
from remap.ops.parts.qkv import NAMES, FuseQkvOp, SplitQkvOp

FIELDS = {
    "before": "from",
    "by": "by",
    "dim": "dim",
    "dims": "dims",
    "over": "over",
    "parts": "parts",
    "sizes": "sizes",
    "start": "start",
    "stop": "stop",
    "to": "to",
    "value": "value",
}
"""Field of an op -> its argument, where the two agree."""


def spelled(op: Op) -> str | dict[str, object]:
    """The op as it stands below ``do:``."""
    found = {FIELDS[f]: _plain(v) for f, v in _fields(op).items() if f in FIELDS and v is not None}
    if op.name == "transpose" and found["dims"] == [0, 1]:
        found = {}
    if found.get("value") == 0.0:
        del found["value"]
    if op.name == "rotary":
        found = {}
    found |= SPECIAL.get(op.name, lambda _: {})(op)
    return {op.name: found} if found else op.name


def _fields(op: Op) -> dict[str, object]:
    return {f: getattr(op, f) for f in type(op).__dataclass_fields__}  # type: ignore[attr-defined]


def _plain(value: object) -> object:
    """Sizes as text, types by their short names."""
    if isinstance(value, tuple):
        return [_plain(v) for v in value]
    if isinstance(value, Num):
        return value.value
    if isinstance(value, (int, float, str)):
        return value
    short = getattr(value, "short", None)
    return str(value) if short is None else short


def _rotary(op: Any) -> dict[str, object]:
    ways = ("interleaved", "half") if op.to_half else ("half", "interleaved")
    found: dict[str, object] = {"heads": _plain(op.heads), "from": ways[0], "to": ways[1]}
    return found if op.dim is None else {**found, "rotary_dim": _plain(op.dim)}


def _rounding(op: Any) -> dict[str, object]:
    return {"rounding": "allowed"} if op.rounding else {}


def _qkv(op: FuseQkvOp | SplitQkvOp) -> dict[str, object]:
    how = op.how
    found: dict[str, object] = {
        "layout": how.layout,
        "heads": _plain(how.heads),
        "kv_heads": _plain(how.kv_heads),
    }
    return found if how.order == NAMES else {**found, "order": list(how.order)}


SPECIAL: dict[str, Callable[[Any], dict[str, object]]] = {
    "add_offset": _rounding,
    "fuse_qkv": _qkv,
    "rotary": _rotary,
    "scale": _rounding,
    "split_qkv": _qkv,
}
"""Ops whose arguments are not their fields."""
