"""The index of a sharded checkpoint: ``model.safetensors.index.json``, ``pytorch_model.bin.index.json``.

``{"metadata": {"total_size": bytes}, "weight_map": {key: file name}}``, as transformers writes it.
Both directions are checked: a key that no shard has, and a shard's key that the index omits.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from remap.documents import is_below, parse_as, read_document
from remap.errors import Damaged, Hostile, UsageError
from remap.expr import Expr
from remap.files import look_ahead
from remap.formats.base import Literal, OutFile


class _Document(msgspec.Struct):
    weight_map: dict[str, str]
    metadata: dict[str, object] = msgspec.field(default_factory=dict)


@dataclass(frozen=True)
class Index:
    """A read index: where it lies, key -> shard's file name, and its metadata."""

    path: Path
    weight_map: Mapping[str, str]
    metadata: Mapping[str, object] = field(default_factory=dict)

    def name(self, shard: Path) -> str:
        """What the index calls a shard: its path from the index's folder, with ``/``."""
        return shard.relative_to(self.path.parent).as_posix()

    @property
    def shards(self) -> list[Path]:
        """The shards, sorted, each once."""
        return [self.path.parent / name for name in sorted(set(self.weight_map.values()))]


def read_index(path: Path) -> Index:
    """Read an index file. Raises Damaged, or Hostile where it names a file outside its folder."""
    found = parse_as(_Document, read_document(path), "an index", path)
    outside = sorted({n for n in found.weight_map.values() if not is_below(n)})
    if outside:
        raise Hostile(
            "the index names files outside its folder",
            where=path,
            problems=[repr(n) for n in outside],
            remedy="do not trust this checkpoint; an index names files of its own folder, or below it",
        )
    if not found.weight_map:
        raise Damaged("the index lists no tensors", where=path)
    return Index(path, found.weight_map, found.metadata)


def has_shards(path: Path) -> bool:
    """Is any shard of the index at ``path`` there? One without is a list of names."""
    return any(shard.exists() for shard in read_index(path).shards)


def check_shards_exist(index: Index) -> None:
    """Raise Damaged naming every shard that is not there."""
    look_ahead(index.shards)
    missing = [index.name(p) for p in index.shards if not p.is_file()]
    if missing:
        raise Damaged(
            f"{len(missing)} of {len(index.shards)} shards are missing",
            where=index.path,
            problems=missing,
            remedy="fetch the missing files into the same folder",
        )


def check_index(index: Index, shards: Mapping[Path, Iterable[str]]) -> None:
    """Compare the index with what the shards hold (file -> keys), both ways. Raises Damaged."""
    held = {key: index.name(file) for file, keys in shards.items() for key in keys}
    problems = [
        f"{key}: the index says {name}, " + (f"but {held[key]} has it" if key in held else "no shard has it")
        for key, name in index.weight_map.items()
        if held.get(key) != name
    ]
    problems += [f"{k}: in {n}, not in the index" for k, n in held.items() if k not in index.weight_map]
    if problems:
        raise Damaged("index and shards disagree", where=index.path, problems=problems)


def split_shards(tensors: Mapping[str, Expr], limit: int | None) -> list[dict[str, Expr]]:
    """Cut ``tensors``, in their order, into groups of at most ``limit`` bytes of data.

    A tensor is never split: one that is larger than the limit is refused with UsageError.
    """
    if limit is None:
        return [dict(tensors)]
    large = [f"{k}: {e.spec.nbytes} bytes" for k, e in tensors.items() if e.spec.nbytes > limit]
    if large:
        raise UsageError(
            f"tensors are larger than --shard-size {limit}",
            problems=large,
            remedy="choose a larger shard size; a tensor is not split over files",
        )
    groups: list[dict[str, Expr]] = [{}]
    size = 0
    for key, expr in tensors.items():
        if groups[-1] and size + expr.spec.nbytes > limit:
            groups.append({})
            size = 0
        groups[-1][key] = expr
        size += expr.spec.nbytes
    return groups


def name_shards(name: str, groups: Sequence[Mapping[str, Expr]]) -> dict[str, Mapping[str, Expr]]:
    """File name -> its tensors: ``name`` for one group, else ``model-00001-of-00002.safetensors``, ..."""
    if len(groups) == 1:
        return {name: groups[0]}
    stem, suffix = os.path.splitext(name)
    return {f"{stem}-{i:05d}-of-{len(groups):05d}{suffix}": group for i, group in enumerate(groups, 1)}


def index_file(name: str, groups: Mapping[str, Mapping[str, Expr]]) -> OutFile:
    """The index of ``name`` over its shards (file name -> tensors); ``total_size`` is bytes of tensors."""
    total = sum(e.spec.nbytes for g in groups.values() for e in g.values())
    weight_map = {key: shard for shard, group in groups.items() for key in group}
    document = {
        "metadata": {"total_size": total},
        "weight_map": dict(sorted(weight_map.items())),
    }
    text = msgspec.json.format(msgspec.json.encode(document), indent=2)
    return OutFile(f"{name}.index.json", (Literal(text + b"\n"),))
