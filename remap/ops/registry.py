"""Name of an op -> its reader. A new op is one file and one line here."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Protocol, cast

from remap.errors import PackError
from remap.ops.base import Op


class Reader(Protocol):
    """Turns an op's arguments, as they stand in the pack, into the op."""

    def __call__(self, arguments: Mapping[str, object]) -> Op: ...


OPS: dict[str, str] = {
    "add_offset": "remap.ops.elements.scale:add_offset",
    "cast": "remap.ops.elements.cast:cast",
    "concat": "remap.ops.parts.concat:concat",
    "deinterleave": "remap.ops.parts.interleave:deinterleave",
    "divide": "remap.ops.parts.sum:divide",
    "fuse_qkv": "remap.ops.parts.qkv:fuse_qkv",
    "interleave": "remap.ops.parts.interleave:interleave",
    "pad": "remap.ops.elements.pad:pad",
    "permute": "remap.ops.elements.permute:permute",
    "reshape": "remap.ops.elements.reshape:reshape",
    "rotary": "remap.ops.elements.rotary:rotary",
    "scale": "remap.ops.elements.scale:scale",
    "slice": "remap.ops.elements.slice:slice_",
    "split": "remap.ops.parts.concat:split",
    "split_qkv": "remap.ops.parts.qkv:split_qkv",
    "stack": "remap.ops.parts.stack:stack",
    "sum": "remap.ops.parts.sum:sum_",
    "tie": "remap.ops.parts.tie:tie",
    "transpose": "remap.ops.elements.permute:transpose",
    "unpad": "remap.ops.elements.pad:unpad",
    "unstack": "remap.ops.parts.stack:unstack",
    "untie": "remap.ops.parts.tie:untie",
}
"""name -> module:function"""


def read_op(name: str, arguments: Mapping[str, object]) -> Op:
    """The op that a rule asks for. Raises PackError, with suggestions for an unknown name."""
    if name not in OPS:
        from rapidfuzz.process import extractOne

        near = extractOne(name, list(OPS), score_cutoff=60)
        raise PackError(
            f"no op is called {name!r}" + (f"; did you mean {near[0]!r}?" if near else ""),
            remedy=f"use one of {', '.join(sorted(OPS))}" if OPS else None,
        )
    module, _, function = OPS[name].partition(":")
    return cast(Reader, getattr(import_module(module), function))(arguments)
