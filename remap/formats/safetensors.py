"""safetensors: one file, or a folder of shards with or without ``model.safetensors.index.json``.

A file is eight bytes (length of the header, little-endian), the header (JSON: key -> dtype, shape,
data_offsets; ``__metadata__``: text), then the data, row-major, without holes. Source of the rules
checked here: the safetensors README ("no holes", header at most 100 MB) and ``tensor.rs``. Two
things that the library accepts are refused, since readers differ on them: duplicate names and a
header that does not begin with ``{``.

Tensors are written in the order of the source's bytes, larger element types first, so that every
tensor is aligned and a rename is one long sequential read. The header ends in spaces (the README allows
them) so that the data lies in its blocks as it did in the source.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Mapping, Sequence
from math import prod
from pathlib import Path

import msgspec

from remap.dtypes import BY_SAFETENSORS
from remap.errors import Damaged, Hostile, NotACheckpoint, UsageError
from remap.expr import Expr, Take, takes
from remap.formats.base import ALIGNED, BLOCK, Literal, OutFile, TensorBytes, WriteOptions
from remap.formats.companions import companions, read_config
from remap.formats.families import check_family, family, firsts
from remap.formats.foreign import describe
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
from remap.types import Catalog, Entry, Location, TensorSpec

HEADER_LIMIT = 100_000_000
_FAMILY = re.compile(r"(?P<stem>.+)-(?P<number>\d{5,6})-of-(?P<count>\d{5,6})(?P<suffix>\.safetensors)")
_METADATA = "__metadata__"


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
        if _METADATA in tensors:
            raise UsageError(
                f"safetensors keeps {_METADATA!r} for itself, and a tensor has that name",
                remedy="rename it, or write a torch file (--to torch)",
            )
        metadata = {"format": "pt", **source.metadata}
        name = options.name or "model.safetensors"
        shards = name_shards(name, split_shards(_in_file_order(tensors), options.shard_size))
        files = [_out_file(n, group, metadata) for n, group in shards.items()]
        return files if len(files) == 1 else [*files, index_file(name, shards)]


FORMAT = Safetensors()


def looks_like_safetensors(path: Path) -> bool:
    """True where the file's first bytes are a safetensors header, damaged or not."""
    if not path.is_file():
        return False
    with path.open("rb") as f:
        head = f.read(64)
    if len(head) < 9:
        return False
    (length,) = struct.unpack("<Q", head[:8])
    return length < 1 << 40 and head[8:].lstrip()[:1] == b"{"


def _catalog(path: Path, files: list[Path], index: Index | None) -> Catalog:
    entries: dict[str, Entry] = {}
    metadata: dict[str, str] = {}
    shards: dict[Path, list[str]] = {}
    doubled = []
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


def read_header(path: Path) -> tuple[dict[str, Entry], dict[str, str]]:
    """The entries of one file, in the order of its bytes, and its metadata. Raises Damaged, Hostile."""
    if not looks_like_safetensors(path):
        raise NotACheckpoint(f"not a safetensors file: {describe(path)}", where=path)
    size = path.stat().st_size
    with path.open("rb") as f:
        head = f.read(8)
        length = struct.unpack("<Q", head)[0] if len(head) == 8 else 0
        if not 2 <= length <= HEADER_LIMIT or 8 + length > size:
            raise Damaged(
                f"the header should take {length} bytes, the file has {size}",
                where=path,
                remedy="the file is truncated or not safetensors; fetch it again",
            )
        text = f.read(length)
    if text[:1] != b"{":
        raise Hostile("the header does not begin with a brace", where=path)
    try:
        header = json.loads(text, object_pairs_hook=_no_duplicates)
    except (ValueError, RecursionError) as e:
        raise Damaged(f"the header is not JSON: {e}", where=path) from None
    except _Duplicate as e:
        raise Hostile(f"the header names {e} twice", where=path) from None
    metadata = header.pop(_METADATA, {})
    if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
        raise Damaged(f"{_METADATA} is not a table of text", where=path)
    entries = [_entry(path, key, value, 8 + length) for key, value in header.items()]
    entries.sort(key=lambda e: (e.location.offset, e.spec.nbytes) if e.location else (0, 0))
    _check_no_holes(path, entries, 8 + length, size)
    return {e.key: e for e in entries}, metadata


class _Duplicate(Exception):
    pass


def _no_duplicates(pairs: list[tuple[str, object]]) -> dict[str, object]:
    table = dict(pairs)
    if len(table) < len(pairs):
        seen: set[str] = set()
        raise _Duplicate(repr(next(k for k, _ in pairs if k in seen or seen.add(k))))  # type: ignore[func-returns-value]
    return table


class _Tensor(msgspec.Struct):
    dtype: str
    shape: list[int]
    data_offsets: tuple[int, int]


def _entry(path: Path, key: str, value: object, data: int) -> Entry:
    where = f"{path}: {key}"
    try:
        tensor = msgspec.convert(value, _Tensor)
    except msgspec.ValidationError as e:
        raise Damaged(f"the header's entry is wrong: {e}", where=where) from None
    found = BY_SAFETENSORS.get(tensor.dtype)
    if found is None:
        raise Damaged(
            f"element type {tensor.dtype!r} is unknown",
            where=where,
            remedy=f"remap reads {', '.join(BY_SAFETENSORS)}",
        )
    start, stop = tensor.data_offsets
    if min(tensor.shape, default=0) < 0 or start < 0 or stop - start != prod(tensor.shape) * found.itemsize:
        raise Damaged(
            f"shape {tensor.shape} of {found.name} takes {prod(tensor.shape) * found.itemsize} bytes, "
            f"data_offsets give {stop - start}",
            where=where,
        )
    return Entry(key, TensorSpec(found, tuple(tensor.shape)), Location(path, data + start))


def _check_no_holes(path: Path, entries: list[Entry], start: int, size: int) -> None:
    for e in entries:
        offset = e.location.offset if e.location else 0
        if offset != start:
            kind = "overlaps the tensor before it" if offset < start else "leaves a hole before it"
            raise Hostile(f"the tensor {kind} (at byte {offset}, expected {start})", where=f"{path}: {e.key}")
        start += e.spec.nbytes
    if start != size:
        what = "is truncated" if size < start else "has bytes that no tensor owns"
        raise Damaged(
            f"the file {what}: {size} bytes, expected {start}", where=path, remedy="fetch the file again"
        )


def _in_file_order(tensors: Mapping[str, Expr]) -> dict[str, Expr]:
    """Larger element types first (alignment), then as the bytes of the sources lie."""

    def place(item: tuple[int, tuple[str, Expr]]) -> tuple[int, str, int, int]:
        number, (_, expr) = item
        first = next((t.entry.location for t in takes(expr)), None)
        where = (str(first.file), first.offset) if first else ("", 0)
        return -expr.spec.dtype.itemsize, *where, number

    return dict(item for _, item in sorted(enumerate(tensors.items()), key=place))


def _out_file(name: str, tensors: Mapping[str, Expr], metadata: Mapping[str, str]) -> OutFile:
    header: dict[str, object] = {_METADATA: dict(metadata)}
    end = 0
    for key, expr in tensors.items():
        start, end = end, end + expr.spec.nbytes
        header[key] = {
            "dtype": expr.spec.dtype.safetensors,
            "shape": expr.spec.shape,
            "data_offsets": [start, end],
        }
    text = msgspec.json.encode(header)
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
