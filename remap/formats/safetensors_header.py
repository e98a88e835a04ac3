"""What a safetensors file begins with: eight bytes (length of the header, little-endian), and the header.

It is JSON: key -> dtype, shape, data_offsets; ``__metadata__``: text. Then comes the data, row-major, without
holes. Source of the rules checked here: the safetensors README ("no holes", header at most 100 MB) and
``tensor.rs``. Two things that the library accepts are refused, since readers differ on them: duplicate names
and a header that does not begin with ``{``.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from pathlib import Path

import msgspec

from remap.documents import Duplicate, once
from remap.dtypes import BY_SAFETENSORS
from remap.errors import Damaged, Hostile, NotACheckpoint
from remap.formats.foreign import describe
from remap.types import Entry, Location, TensorSpec

HEADER_LIMIT = 100_000_000
METADATA = "__metadata__"


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
    tensors, metadata = _decoded(text) or _checked(path, text)
    specs: dict[tuple[str, tuple[int, ...]], TensorSpec] = {}
    entries = [_entry(path, key, tensor, 8 + length, specs) for key, tensor in tensors.items()]
    entries.sort(key=lambda e: (e.location.offset, e.spec.nbytes) if e.location else (0, 0))
    _check_no_holes(path, entries, 8 + length, size)
    return {e.key: e for e in entries}, metadata


class _Tensor(msgspec.Struct, gc=False):
    dtype: str
    shape: tuple[int, ...]
    data_offsets: tuple[int, int]


class _Entry(msgspec.Struct, gc=False):
    """A tensor's entry, or that of the metadata, which has none of these."""

    dtype: str | None = None
    shape: tuple[int, ...] = ()
    data_offsets: tuple[int, int] = (0, 0)


class _Rest(msgspec.Struct):
    metadata: msgspec.Raw = msgspec.field(name=METADATA, default=msgspec.Raw(b"{}"))


Header = tuple[Mapping[str, _Tensor | _Entry], dict[str, str]]


def _decoded(text: bytes) -> Header | None:
    """The header in a tenth of the time that ``_checked`` takes; None where it may be wrong, or may say
    something twice: tables and the names of their fields are counted, which no escape may spell otherwise."""
    try:
        entries = msgspec.json.decode(text, type=dict[str, _Entry])
        rest = msgspec.json.decode(text, type=_Rest)
        metadata = json.loads(bytes(rest.metadata), object_pairs_hook=once)
    except (msgspec.MsgspecError, ValueError, RecursionError, Duplicate):
        return None
    there = int(entries.pop(METADATA, None) is not None)
    n = len(entries)
    sure = b"\\u" not in text and _counts(text) == [n + there + 1, n, n, n, there]
    plain = isinstance(metadata, dict) and all(isinstance(v, str) for v in metadata.values())
    return (entries, metadata) if sure and plain else None


def _counts(text: bytes) -> list[int]:
    names = ("{", '"dtype"', '"shape"', '"data_offsets"', f'"{METADATA}"')
    return [text.count(name.encode()) for name in names]


def _checked(path: Path, text: bytes) -> Header:
    """The header, read with care. Raises Damaged, Hostile."""
    try:
        header = json.loads(text, object_pairs_hook=once)
    except (ValueError, RecursionError) as e:
        raise Damaged(f"the header is not JSON: {e}", where=path) from None
    except Duplicate as e:
        raise Hostile(f"the header names {e} twice", where=path) from None
    metadata = header.pop(METADATA, {})
    if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
        raise Damaged(f"{METADATA} is not a table of text", where=path)
    tensors = {}
    for key, value in header.items():
        try:
            tensors[key] = msgspec.convert(value, _Tensor)
        except msgspec.ValidationError as e:
            raise Damaged(f"the header's entry is wrong: {e}", where=f"{path}: {key}") from None
    return tensors, metadata


def _entry(
    path: Path,
    key: str,
    tensor: _Tensor | _Entry,
    data: int,
    specs: dict[tuple[str, tuple[int, ...]], TensorSpec],
) -> Entry:
    """``specs`` are those that were made: tensors of a model share a few."""
    what = tensor.dtype or "", tensor.shape
    spec = specs.get(what) or specs.setdefault(what, _spec(f"{path}: {key}", *what))
    start, stop = tensor.data_offsets
    if start < 0 or stop - start != spec.nbytes:
        raise Damaged(
            f"shape {list(spec.shape)} of {spec.dtype.name} takes {spec.nbytes} bytes, "
            f"data_offsets give {stop - start}",
            where=f"{path}: {key}",
        )
    return Entry(key, spec, Location(path, data + start))


def _spec(where: str, dtype: str, shape: tuple[int, ...]) -> TensorSpec:
    found = BY_SAFETENSORS.get(dtype)
    if found is None:
        raise Damaged(
            f"element type {dtype!r} is unknown",
            where=where,
            remedy=f"remap reads {', '.join(BY_SAFETENSORS)}",
        )
    if min(shape, default=0) < 0:
        raise Damaged(f"a size in shape {list(shape)} is negative", where=where)
    return TensorSpec(found, shape)


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
