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
    "add_offset": "remap.ops.scale:add_offset",
    "cast": "remap.ops.cast:cast",
    "concat": "remap.ops.concat:concat",
    "deinterleave": "remap.ops.interleave:deinterleave",
    "divide": "remap.ops.sum:divide",
    "fuse_qkv": "remap.ops.qkv:fuse_qkv",
    "interleave": "remap.ops.interleave:interleave",
    "pad": "remap.ops.pad:pad",
    "permute": "remap.ops.permute:permute",
    "reshape": "remap.ops.reshape:reshape",
    "rotary": "remap.ops.rotary:rotary",
    "scale": "remap.ops.scale:scale",
    "slice": "remap.ops.slice:slice_",
    "split": "remap.ops.concat:split",
    "split_qkv": "remap.ops.qkv:split_qkv",
    "stack": "remap.ops.stack:stack",
    "sum": "remap.ops.sum:sum_",
    "tie": "remap.ops.tie:tie",
    "transpose": "remap.ops.permute:transpose",
    "unpad": "remap.ops.pad:unpad",
    "unstack": "remap.ops.stack:unstack",
    "untie": "remap.ops.tie:untie",
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
