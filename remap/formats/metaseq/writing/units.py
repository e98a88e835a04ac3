"""Which parameters become which flat tensors, where a checkpoint is unflattened and has to be flattened.

What ``shard_metadata`` lies beside the weights is used, with the shapes that they have now; where there is
none, the partition says which modules are units and in what order parameters come.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from remap.errors import InputError
from remap.expr import Expr
from remap.formats.metaseq.files.metadata import Flat, Metadata
from remap.formats.metaseq.partition import Partition

FLAT = "flat_param_0"


def reshaped(metadata: Metadata, tensors: Mapping[str, Expr]) -> Metadata | None:
    """``metadata`` with the shapes of ``tensors``; None where they are not the same parameters."""
    if not all(n in tensors for n in metadata.names):
        return None
    flats = {
        k: replace(f, shapes={n: tensors[n].spec.shape for n in f.shapes}, padding=0)
        for k, f in metadata.flats.items()
    }
    return replace(metadata, flats=flats)


def units_of(tensors: Mapping[str, Expr], partition: Partition, tied: bool, where: object) -> Metadata:
    """Metadata for a checkpoint that has none. ``tied`` says that a projection is its embedding.

    Raises InputError naming every tensor whose place among the parameters is not known.
    """
    unknown = [n for n in tensors if partition.of(n) is None]
    if unknown:
        raise InputError(
            "there is no shard_metadata, and the partition file does not know these names: in which flat "
            "tensor they lie, and where, can't be told",
            where=where,
            problems=unknown,
            remedy="list them in order in a file for --partition, like rules/opt/metaseq.partition.yml",
        )
    buffers = [n for n in tensors if (s := partition.of(n)) is not None and s.buffer]
    aliases = _aliases(tensors, partition, tied)
    paths: dict[str, list[str]] = {"": []}
    for name in sorted(tensors, key=_by_number):
        if name not in aliases and name not in buffers:
            paths.setdefault(_unit(name, partition), []).append(name)
    flats: dict[str, Flat] = {}
    for unit, path in enumerate(sorted(paths, key=_by_number)):
        names = sorted(paths[path], key=partition.place)
        key = f"{path}.{FLAT}" if path else FLAT
        if names:
            flats[key] = Flat(key, unit, FLAT, {n: tensors[n].spec.shape for n in names}, 0)
    return Metadata(flats, aliases, tuple(buffers))


def _aliases(tensors: Mapping[str, Expr], partition: Partition, tied: bool) -> dict[str, str]:
    """Second name -> first name of what is one parameter."""
    first: dict[int, str] = {}
    aliases: dict[str, str] = {}
    for name in sorted(tensors, key=partition.place):
        split = partition.of(name)
        kept = first.setdefault(id(tensors[name]), name)
        if kept != name:
            aliases[name] = kept
        elif tied and split is not None and split.tied and split.like in tensors:
            aliases[name] = split.like
    return aliases


def _unit(name: str, partition: Partition) -> str:
    """The innermost module around a parameter that is a unit; the root's is empty."""
    pieces = name.split(".")[:-1]
    for n in range(len(pieces), 0, -1):
        path = ".".join(pieces[:n])
        if any(u.fullmatch(path) for u in partition.units):
            return path
    return ""


def _by_number(name: str) -> list[tuple[int, str]]:
    """Layer 10 comes after layer 2."""
    return [(int(p), "") if p.isdigit() else (-1, p) for p in re.split(r"(\d+)", name) if p]
