"""``tie`` writes one tensor under several names, ``untie`` keeps the first of several equal ones.

from: "model.embed_tokens.weight"
to: ["model.embed_tokens.weight", "lm_head.weight"]
do: tie
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from remap.errors import UsageError
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
    """The first part; the others are the same by the author's word."""

    name: str = "untie"
    shape: Shape = "join"
    over: None = None
    symbols: frozenset[str] = frozenset()

    def build(self, parts: Parts, scope: Scope) -> Parts:
        for p in parts:
            if p.spec != parts[0].spec:
                raise UsageError(f"untie of {parts[0].spec} and {p.spec}, which can't be the same tensor")
        return parts[:1]

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
