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


OPS: dict[str, str] = {}
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
