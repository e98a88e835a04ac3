"""Tables of tensor-parallel ranks in a catalog: one is the model's own; several wait to be merged.

Formats do not know which tensors are pieces and which are copies. Until they are merged, the entries of a
catalog are those of all ranks, each under a name of its own (``types.rank_key``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from remap.errors import Damaged
from remap.formats.base import OutFile, TensorBytes
from remap.types import Catalog, Entry, rank_key


def catalog_of_ranks(tables: Sequence[Mapping[str, Entry]], found: Catalog) -> Catalog:
    """``found`` with the tensors of its ranks. Raises Damaged where they do not hold the same keys."""
    if len(tables) == 1:
        return replace(found, entries=tables[0])
    names = {k for t in tables for k in t}
    lacking = [f"rank {r} has no {k}" for r, t in enumerate(tables) for k in sorted(names - t.keys())]
    if lacking:
        raise Damaged(
            "tensor-parallel ranks do not hold the same tensors",
            where=found.root,
            problems=lacking,
            remedy="the files are of different runs: fetch them again",
        )
    entries = {rank_key(k, r): e for r, table in enumerate(tables) for k, e in table.items()}
    return replace(found, entries=entries, stored=entries, ranks=tuple(tables))


def labelled(file: OutFile, prefix: str, rank: int | None) -> OutFile:
    """The same file; its tensors are called what the plan calls them: by layer, and by rank where there are
    several."""
    held = [p.key for p in file.parts if isinstance(p, TensorBytes)]
    whole = {k: f"{prefix}{k}" for k in held}
    return labelled_as(file, whole if rank is None else {k: rank_key(v, rank) for k, v in whole.items()})


def labelled_as(file: OutFile, names: Mapping[str, str]) -> OutFile:
    """The same file; its tensors are called by other ``names`` in what is written of them."""
    parts = tuple(replace(p, key=names[p.key]) if isinstance(p, TensorBytes) else p for p in file.parts)
    return replace(file, parts=parts)
