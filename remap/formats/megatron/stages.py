"""Layers of a pipeline: each stage counts its own from 0, a model counts them through.

In: the tables of the stages of one rank. Out: the table of the model, or the way back. A tensor that two
stages have (a tied embedding) is one if its bytes are the same, which is checked when it is read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from remap.errors import Damaged, UsageError
from remap.expr import Expr, Same, Take
from remap.formats.absent import absent
from remap.types import Derived, Entry

_LAYER = re.compile(r"(.*?\blayers\.)(\d+)(\..*)")
EMBEDDING = re.compile(r"(?:language_model\.)?embedding\.")
_LAST = re.compile(r".*(?:final_?layer_?norm|final_norm|output_layer|word_embeddings_for_head)\b.*")


def layer_of(key: str) -> tuple[str, int, str] | None:
    """A key around its layer's number; None where it has none."""
    found = _LAYER.fullmatch(key)
    return (found[1], int(found[2]), found[3]) if found else None


def joined(stages: Sequence[Mapping[str, Entry]]) -> dict[str, Entry]:
    """The model's table. Raises Damaged where a stage lacks layers."""
    out: dict[str, list[Entry]] = {}
    start = 0
    for number, table in enumerate(stages):
        layers = {found[1] for k in table if (found := layer_of(k))}
        _, gaps = absent(layers, max(layers, default=-1) + 1)
        if gaps:
            raise Damaged(f"stage {number} has no layer {gaps[0]}", remedy="fetch its file again")
        for key, entry in table.items():
            found = layer_of(key)
            name = f"{found[0]}{found[1] + start}{found[2]}" if found else key
            out.setdefault(name, []).append(entry)
        start += len(layers)
    return {key: _one(key, several) for key, several in out.items()}


def _one(key: str, several: Sequence[Entry]) -> Entry:
    """One tensor of the stages that have it."""
    if len({e.spec for e in several}) > 1:
        shapes = " and ".join(str(e.spec) for e in several)
        raise Damaged(f"stages have {key} in different shapes: {shapes}")
    if len(several) == 1:
        return replace(several[0], key=key)
    return Entry(key, several[0].spec, Derived(Same(tuple(Take(e) for e in several))))


def divided(table: Mapping[str, Expr], stages: int) -> list[dict[str, Expr]]:
    """Every stage's table, layers counted from 0 in each. Raises UsageError."""
    if stages == 1:
        return [dict(table)]
    count = 1 + max((found[1] for k in table if (found := layer_of(k))), default=-1)
    if not count or count % stages:
        raise UsageError(f"{count} layers can't be divided into {stages} stages")
    if not any(_LAST.fullmatch(k) and "norm" not in k for k in table):
        raise UsageError(
            "embedding and head are tied: the last stage wants a copy of its own",
            remedy="write one stage",
        )
    size = count // stages
    out: list[dict[str, Expr]] = [{} for _ in range(stages)]
    unknown = []
    for key, expr in table.items():
        found = layer_of(key)
        if found:
            out[found[1] // size][f"{found[0]}{found[1] % size}{found[2]}"] = expr
        elif EMBEDDING.match(key):
            out[0][key] = expr
        elif _LAST.fullmatch(key):
            out[-1][key] = expr
        else:
            unknown.append(key)
    if unknown:
        raise UsageError("which stage has these can't be told", problems=unknown, remedy="write one stage")
    return out


def keys_at(table: Iterable[str], stage: int, size: int) -> dict[str, str]:
    """Key in a stage -> key in the model."""
    out = {}
    for key in table:
        found = layer_of(key)
        out[key] = f"{found[0]}{found[1] + stage * size}{found[2]}" if found else key
    return out
