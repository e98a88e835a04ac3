"""Small files that describe: JSON, YAML and text, read whole but never without a limit.

JSON that names something twice is refused: readers differ on which of the two counts.
"""

from __future__ import annotations

import json
import zlib
from pathlib import Path, PureWindowsPath
from typing import Any, TypeVar

import msgspec

from remap.errors import Damaged, Hostile, InputError

T = TypeVar("T")

LIMIT = 160 << 20
"""Bytes. The index of a million tensors has 100 MB."""


def read_document(path: Path, limit: int = LIMIT) -> bytes:
    """The bytes of a regular file of at most ``limit``. Raises InputError: a device may have no end, and a
    pipe may never begin."""
    try:
        if not path.is_file() and path.exists():
            raise InputError(
                "is no regular file", where=path, remedy="it may be a link to a device: remove it"
            )
        with path.open("rb") as f:
            data = f.read(limit + 1)
    except OSError as e:
        raise InputError(f"it can't be read: {e.strerror}", where=path) from None
    if len(data) > limit:
        raise Damaged(f"a description of more than {limit} bytes is none", where=path)
    return data


def is_below(name: str) -> bool:
    """True for a relative path that goes down only, on POSIX and on Windows alike."""
    parts = name.split("/")
    return not any(p in ("", ".", "..") or PureWindowsPath(p).name != p or "\0" in p for p in parts)


def unzipped(data: bytes, where: object, limit: int = LIMIT) -> bytes:
    """What gzip ``data`` unpacks to. Raises Damaged, Hostile where that is more than ``limit``."""
    unpack = zlib.decompressobj(wbits=31)
    try:
        text = unpack.decompress(data, limit + 1)
    except zlib.error as e:
        raise Damaged(f"it can't be unpacked: {e}", where=where) from None
    if len(text) > limit:
        raise Hostile(f"it unpacks to more than {limit} bytes", where=where)
    if not unpack.eof:
        raise Damaged("it can't be unpacked: it ends too early", where=where)
    return text


def parse_json(data: bytes, what: str, where: object) -> Any:
    """JSON as dicts and lists. Raises Damaged (``not {what}: ...``), Hostile where a name stands twice."""
    try:
        found = msgspec.json.decode(data)
        if data.count(b'":') != _names(found):  # quick, and right unless something stands twice or is odd
            json.loads(data, object_pairs_hook=once)
    except Duplicate as e:
        raise Hostile(f"it names {e} twice", where=where, remedy="readers differ on which counts") from None
    except (ValueError, RecursionError) as e:
        raise Damaged(f"not {what}: {e}", where=where) from None
    return found


def parse_as(kind: type[T], data: bytes, what: str, where: object) -> T:
    """JSON as a msgspec struct. Raises as ``parse_json`` does."""
    found = parse_json(data, what, where)
    try:
        return msgspec.convert(found, kind)
    except (msgspec.ValidationError, RecursionError) as e:
        raise Damaged(f"not {what}: {e}", where=where) from None


def _names(value: object) -> int:
    """Names in the dicts of a document, but for dicts in lists."""
    if type(value) is not dict:
        return 0
    return len(value) + sum(_names(v) for v in value.values() if type(v) is dict)


class Duplicate(Exception):
    """A name that stands twice in one object; its text is the name, quoted."""


def once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """For ``object_pairs_hook``: the dict of ``pairs``. Raises Duplicate."""
    table = dict(pairs)
    if len(table) < len(pairs):
        seen: set[str] = set()
        raise Duplicate(repr(next(k for k, _ in pairs if k in seen or seen.add(k))))  # type: ignore[func-returns-value]
    return table
