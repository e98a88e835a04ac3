"""safetensors: one file, or a folder of shards with or without ``model.safetensors.index.json``.

``safetensors_header`` reads and checks what a file begins with.

Tensors are written in the order of the source's bytes, larger element types first, so that every
tensor is aligned and a rename is one long sequential read. The header ends in spaces (the README allows
them), so that names can become longer and the data lies in its blocks as it did in the source.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from remap.errors import Damaged, UsageError
from remap.expr import Expr, Take, takes
from remap.files import look_ahead
from remap.formats.base import ALIGNED, BLOCK, Literal, OutFile, TensorBytes, WriteOptions
from remap.formats.companions import companions, read_config
from remap.formats.families import check_family, family, firsts
from remap.formats.index import (
    Index,
    check_index,
    check_shards_exist,
    has_shards,
    index_file,
    name_shards,
    read_index,
    split_shards,
)
from remap.formats.safetensors_header import (
    HEADER_LIMIT,
    METADATA,
    looks_like_safetensors,
    read_header,
)
from remap.types import Catalog, Entry

_FAMILY = re.compile(r"(?P<stem>.+)-(?P<number>\d{5,6})-of-(?P<count>\d{5,6})(?P<suffix>\.safetensors)")


ROOM = 32
"""Bytes that a header has for each tensor's name to become longer (``remap convert --in-place``)."""


class Safetensors:
    """The ``safetensors`` format: see the module's docstring."""

    name = "safetensors"
    title = "safetensors file or folder of shards"

    def find(self, path: Path) -> Sequence[Path]:
        """Index files, shard families (their first file) and single files at ``path``."""
        if path.is_dir():
            indexes = sorted(path.glob("*.safetensors.index.json"))
            listed = {shard for i in indexes for shard in read_index(i).shards}
            rest = [p for p in sorted(path.glob("*.safetensors")) if p not in listed]
            return [*indexes, *firsts(rest, _FAMILY)]
        if path.name.endswith(".safetensors.index.json"):
            return [path] if has_shards(path) else []
        if not looks_like_safetensors(path):
            return []
        indexes = [
            i for i in sorted(path.parent.glob("*.safetensors.index.json")) if path in read_index(i).shards
        ]
        return indexes[:1] or firsts(family(path, _FAMILY), _FAMILY)

    def open(self, path: Path, *, at: str | None = None) -> Catalog:
        """Read the headers of every shard. Raises Damaged or Hostile."""
        if at is not None:
            raise UsageError("a safetensors file has no parts; --at is for torch files", where=path)
        index = read_index(path) if path.name.endswith(".index.json") else None
        if index is not None:
            check_shards_exist(index)
        files = index.shards if index else family(path, _FAMILY)
        if index is None:
            check_family(files, _FAMILY)
        return _catalog(path, files, index)

    def lay_out(self, tensors: Mapping[str, Expr], source: Catalog, options: WriteOptions) -> list[OutFile]:
        """One file, or shards of at most ``options.shard_size`` bytes and their index, written last."""
        unknown = [
            f"{k}: {e.spec.dtype.name}" for k, e in tensors.items() if e.spec.dtype.safetensors is None
        ]
        if unknown:
            raise UsageError(
                "safetensors has no such element type",
                problems=unknown,
                remedy="write a torch file (--to torch)",
            )
        if METADATA in tensors:
            raise UsageError(
                f"safetensors keeps {METADATA!r} for itself, and a tensor has that name",
                remedy="rename it, or write a torch file (--to torch)",
            )
        metadata = {"format": "pt", **source.metadata}
        name = options.name or "model.safetensors"
        shards = name_shards(name, split_shards(_in_file_order(tensors), options.shard_size))
        files = [_out_file(n, group, metadata) for n, group in shards.items()]
        return files if len(files) == 1 else [*files, index_file(name, shards)]


FORMAT = Safetensors()


def _catalog(path: Path, files: list[Path], index: Index | None) -> Catalog:
    entries: dict[str, Entry] = {}
    metadata: dict[str, str] = {}
    shards: dict[Path, list[str]] = {}
    doubled = []
    look_ahead(files, heads=True)
    for file in files:
        found, text = read_header(file)
        doubled += [f"{k}: in {entries[k].location.file.name} and {file.name}" for k in found if k in entries]  # type: ignore[union-attr]
        shards[file] = list(found)
        entries.update(found)
        metadata.update(text)
    if doubled:
        raise Damaged("keys are in more than one shard", where=path.parent, problems=doubled)
    if index is not None:
        check_index(index, shards)
    if not entries:
        raise Damaged("the checkpoint holds no tensors", where=path)
    return Catalog(
        format=FORMAT.name,
        root=path,
        files=tuple(sorted([*files, index.path] if index else files)),
        entries=entries,
        metadata=metadata,
        config=read_config(path.parent),
        companions=companions(path.parent),
    )


def _in_file_order(tensors: Mapping[str, Expr]) -> dict[str, Expr]:
    """Larger element types first (alignment), then as the bytes of the sources lie."""

    def place(item: tuple[str, Expr]) -> tuple[int, str, int]:
        expr = item[1]
        first = next((t.entry.location for t in takes(expr)), None)
        return -expr.spec.dtype.itemsize, str(first.file) if first else "", first.offset if first else 0

    return dict(sorted(tensors.items(), key=place))


def _out_file(name: str, tensors: Mapping[str, Expr], metadata: Mapping[str, str]) -> OutFile:
    header: dict[str, object] = {METADATA: dict(metadata)}
    end = 0
    for key, expr in tensors.items():
        start, end = end, end + expr.spec.nbytes
        header[key] = {
            "dtype": expr.spec.dtype.safetensors,
            "shape": expr.spec.shape,
            "data_offsets": [start, end],
        }
    text = msgspec.json.encode(header)
    text += b" " * max(0, min(ROOM * len(tensors), HEADER_LIMIT - BLOCK - len(text)))
    text += b" " * _padding(8 + len(text), end, next(iter(tensors.values()), None))
    if len(text) > HEADER_LIMIT:
        raise UsageError(
            f"the header of {name} would take {len(text)} bytes; safetensors allows {HEADER_LIMIT}",
            remedy="write several files with --shard-size",
        )
    head = Literal(struct.pack("<Q", len(text)) + text)
    return OutFile(name, (head, *(TensorBytes(k, e) for k, e in tensors.items())))


def _padding(used: int, nbytes: int, first: Expr | None) -> int:
    """Spaces after a header that ends at ``used``: the data begins at a multiple of 8 or, where it is large,
    as far into a block as the source's, which can then share its blocks."""
    if nbytes < ALIGNED:
        return -used % 8
    where = first.entry.location if isinstance(first, Take) else None
    offset = where.offset if where and where.offset % 8 == 0 else 0
    return (offset - used) % BLOCK
