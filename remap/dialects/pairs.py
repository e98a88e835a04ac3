"""Factors that belong together: one without the other adds nothing, and both must agree in rank."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

from remap.dialects import registry
from remap.dialects.base import AdapterTensor, to_peft
from remap.expr import Take
from remap.types import Entry, TensorSpec


class Pair(NamedTuple):
    """Two leaves, and which dimension of each is the rank."""

    first: str
    rows: int
    second: str
    columns: int


PAIRS = (
    Pair("lora_A.weight", 0, "lora_B.weight", 1),
    Pair("lora_A", 0, "lora_B", 1),
    Pair("lora_embedding_A", 0, "lora_embedding_B", 1),
    Pair("hada_w1_a", 1, "hada_w1_b", 0),
    Pair("hada_w2_a", 1, "hada_w2_b", 0),
    Pair("lokr_w1_a", 1, "lokr_w1_b", 0),
    Pair("lokr_w2_a", 1, "lokr_w2_b", 0),
)
_BY_LEAF = {p.first: p for p in PAIRS} | {p.second: p for p in PAIRS}


def partner(tensor: AdapterTensor, dialect: str) -> str:
    """The key of the other factor; empty for what has none."""
    pair = _BY_LEAF.get(tensor.leaf)
    if pair is None:
        return ""
    other = pair.second if tensor.leaf == pair.first else pair.first
    return registry.get(dialect).spell(replace(tensor, leaf=other))


def broken(
    tensors: Iterable[AdapterTensor], specs: Mapping[str, TensorSpec], dialect: str, *, unshaped: bool = False
) -> Iterator[tuple[str, str]]:
    """Key and what is wrong with it, of every factor that is alone, empty, or of another rank.

    specs     by the tensors' keys
    unshaped  shapes are not known
    """
    groups: dict[tuple[str, str, str], dict[str, AdapterTensor]] = {}
    for t in tensors:
        groups.setdefault((t.wrapper, t.module, t.adapter), {})[t.leaf] = t
    for group in groups.values():
        for leaf, tensor in group.items():
            pair = _BY_LEAF.get(leaf)
            if pair is None:
                continue
            other = group.get(pair.second if leaf == pair.first else pair.first)
            if other is None:
                yield tensor.key, f"there is no {partner(tensor, dialect)}"
            elif not unshaped:
                yield from _shapes(tensor, other, pair, specs, dialect)


def _shapes(
    tensor: AdapterTensor, other: AdapterTensor, pair: Pair, specs: Mapping[str, TensorSpec], dialect: str
) -> Iterator[tuple[str, str]]:
    shape, its = (_shape(t, specs, dialect) for t in (tensor, other))
    if len(shape) < 2 or 0 in shape:
        why = "saved under ZeRO-3 or FSDP without gathering it"
        yield tensor.key, f"its shape is {list(shape)}: a factor has rows and columns ({why})"
    elif tensor.leaf == pair.first and len(its) >= 2 and 0 not in its:
        rank, also = shape[pair.rows], its[pair.columns]
        if rank != also:
            yield tensor.key, f"its rank is {rank}, that of {other.key} is {also}"


def _shape(tensor: AdapterTensor, specs: Mapping[str, TensorSpec], dialect: str) -> tuple[int, ...]:
    spec = specs[tensor.key]
    if len(spec.shape) < 2:
        return spec.shape
    return to_peft(registry.get(dialect), tensor.leaf, Take(Entry(tensor.key, spec))).spec.shape
