"""``tie`` writes one tensor under several names, ``untie`` makes one of several that are equal.

from: "model.embed_tokens.weight"
to: ["model.embed_tokens.weight", "lm_head.weight"]
do: tie
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from remap.expr import Same
from remap.ops.arguments import Arguments
from remap.ops.base import Parts, Scope, Shape


@dataclass(frozen=True)
class TieOp:
    """The part once for every target."""

    name: str = "tie"
    shape: Shape = "cut"
    over: None = None
    symbols: frozenset[str] = frozenset()

    def build(self, parts: Parts, scope: Scope) -> Parts:
        return parts * (scope.wanted or 1)

    def inverse(self) -> UntieOp:
        return UntieOp()


@dataclass(frozen=True)
class UntieOp:
    """The one tensor that all parts are."""

    name: str = "untie"
    shape: Shape = "join"
    over: None = None
    symbols: frozenset[str] = frozenset()

    def build(self, parts: Parts, scope: Scope) -> Parts:
        return (Same(parts),)

    def inverse(self) -> TieOp:
        return TieOp()


def tie(given: Mapping[str, object]) -> TieOp:
    """Read ``tie``'s arguments."""
    Arguments("tie", given).done()
    return TieOp()


def untie(given: Mapping[str, object]) -> UntieOp:
    """Read ``untie``'s arguments."""
    Arguments("untie", given).done()
    return UntieOp()
