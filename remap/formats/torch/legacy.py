"""Torch files before 1.6, read only: five pickles in a row, then the storages.

    magic number, protocol version (1001), system info, object, list of storage keys;
    then for every key of the list: number of elements (int64), elements

Source: torch ``serialization.py`` (``_legacy_save``, ``_legacy_load``).
"""

from __future__ import annotations

import mmap
import struct
from pathlib import Path

from remap.errors import Damaged, Hostile, InputError
from remap.files import is_remote
from remap.formats.torch.state import Contents, Stored
from remap.pickles.graph import items_of, plain
from remap.pickles.nodes import Value
from remap.pickles.screen import screen
from remap.pickles.survey import Survey, survey
from remap.pickles.walk import Walk, walk

PROTOCOL = 1001
_NAMES = ("magic number", "protocol version", "system info", "object", "storage keys")
_FETCH = "fetch the file again; it is cut short or altered"


def read_legacy(path: Path, keep_suspicious: bool) -> tuple[Contents, tuple[str, ...]]:
    """The contents of a legacy file, and its opaque classes. Raises Damaged, Hostile; InputError for a remote
    file, which would be fetched whole."""
    if is_remote(path):
        raise InputError(
            "a torch file from before 1.6 can't be read in parts",
            where=path,
            remedy="fetch it and use the copy",
        )
    with path.open("rb") as f, mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ) as data:
        magic, protocol, info, main, keys = _pickles(path, data)
        if any(w.globals for w in (magic, protocol, info, keys)):
            raise Hostile("a header pickle names globals; it should hold numbers and text", where=path)
        if protocol.root != PROTOCOL:
            raise Damaged(f"protocol {plain(protocol.root)!r}, should be {PROTOCOL}", where=path)
        _check_info(path, info.root)
        where = f"{path}: object pickle"
        opaque = screen(main, where=where, keep_suspicious=keep_suspicious)
        found = survey(main.root, where)
        storages = _storages(path, data, keys, found)
    return Contents(path, b"", main, found, storages), opaque


def _pickles(path: Path, data: mmap.mmap) -> list[Walk]:
    """The five pickles."""
    walks: list[Walk] = []
    pos = 0
    for name in _NAMES:
        walks.append(walk(data, pos, where=f"{path}: {name}"))
        pos = walks[-1].end
    return walks


def _check_info(path: Path, info: Value) -> None:
    found = plain(info)
    if not isinstance(found, dict) or found.get("little_endian") is not True:
        raise Damaged(
            "the file was written on a big-endian machine",
            where=path,
            remedy="load and save it again with torch on that machine",
        )


def _storages(path: Path, data: mmap.mmap, keys: Walk, found: Survey) -> dict[str, Stored]:
    """Where each storage lies; they fill the rest of the file."""
    names = [plain(k) for k in items_of(keys.root) or ()]
    if len(set(map(str, names))) != len(names) or set(names) != set(found.storages):
        raise Hostile("the list of storages differs from what the tensors name", where=path, remedy=_FETCH)
    stored: dict[str, Stored] = {}
    pos = keys.end
    for name in names:
        assert isinstance(name, str)
        ref = found.storages[name]
        if pos + 8 + ref.nbytes > len(data):
            raise Damaged(f"the file ends inside storage {name}", where=path, remedy=_FETCH)
        numel = struct.unpack_from("<q", data, pos)[0]
        if numel != ref.numel:
            raise Damaged(
                f"storage {name} has {numel} elements, the pickle says {ref.numel}", where=path, remedy=_FETCH
            )
        stored[name] = Stored(pos + 8, ref.nbytes)
        pos += 8 + ref.nbytes
    if pos != len(data):
        raise Hostile(f"{len(data) - pos} bytes follow the last storage", where=path, remedy=_FETCH)
    return stored
