"""Torch files in a zip, as ``torch.save`` writes them since 1.6: read here, the pickle never executed.

``<prefix>/data.pkl`` is a pickle in which every storage is a persistent id; ``<prefix>/data/<key>``
are the storages. Source: torch ``serialization.py`` (``_save``, ``_load``).
"""

from __future__ import annotations

from pathlib import Path

from remap.errors import Damaged, Hostile, NotACheckpoint
from remap.formats.foreign import describe
from remap.formats.torch.container import (
    TORCHSCRIPT,
    TORCHSCRIPT_REMEDY,
    Archive,
    check_regular,
    read_archive,
)
from remap.formats.torch.state import Contents, Stored, TorchFile, check_storages, make_file
from remap.formats.torch.writing.emit import emit
from remap.formats.torch.writing.rewrite import rewrite
from remap.pickles.screen import screen
from remap.pickles.survey import survey
from remap.pickles.walk import no_gc, walk

__all__ = ["TorchFile", "emit", "is_torch", "read", "read_zip", "rewrite"]

_LEGACY_MAGIC = (b"\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19.", b"L119547037146038801333356L\n.")
"""End of the first pickle of a file before torch 1.6: the number 0x1950a86a20f9469cfc6c, in
protocol 2 and later, and in protocols 0 and 1."""


def is_torch(path: Path) -> bool:
    """True where the content is a torch file, of either container. Reads no more than its ends."""
    if not path.is_file():
        return False
    with path.open("rb") as f:
        head = f.read(1024)
        if _is_legacy(head):
            return True
        if not head.startswith(b"PK\x03\x04"):
            return False
        f.seek(max(0, path.stat().st_size - (1 << 16)))
        return b"/data.pkl" in head or b"/data.pkl" in f.read() or b"/version" in head


def _is_legacy(head: bytes) -> bool:
    return head[:1] in (b"\x80", b"L") and any(m in head[:40] for m in _LEGACY_MAGIC)


def read(
    path: Path, at: str | None = None, *, state_dict: bool = True, keep_suspicious: bool = False
) -> TorchFile:
    """Read the headers of a torch file, zip or legacy.

    at               where the state dict lies, where that is ambiguous
    state_dict       False: a file without a state dict opens too, without entries
    keep_suspicious  True: names that a loader should not call are carried along, not refused

    Raises NotACheckpoint, Damaged, Hostile; UsageError where ``at`` is wrong or needed.
    """
    check_regular(path)
    with path.open("rb") as f:
        head = f.read(1024)
    if head.startswith(b"PK\x03\x04"):
        with no_gc():
            contents, opaque = read_zip(path, keep_suspicious)
            return make_file(contents, opaque, at, state_dict)
    if _is_legacy(head):
        from remap.formats.torch.legacy import read_legacy

        with no_gc():
            contents, opaque = read_legacy(path, keep_suspicious)
            return make_file(contents, opaque, at, state_dict)
    raise NotACheckpoint(_what_it_is(path, head), where=path)


def _what_it_is(path: Path, head: bytes) -> str:
    if head[8:9] == b"{" and head[7:8] == b"\0":
        return "not a torch file but safetensors: name it .safetensors"
    if b"ustar" in head[257:263]:
        return "a tar archive, as torch before 0.1.10 wrote them: load and save it again with torch 1.x"
    if head[:1] == b"\x80":
        return "a plain pickle, not a torch file: remap reads what torch.save writes"
    return f"not a torch file: {describe(path)}"


def read_zip(path: Path, keep_suspicious: bool = False) -> tuple[Contents, tuple[str, ...]]:
    """The contents of a torch zip, and its opaque classes. Raises NotACheckpoint, Damaged, Hostile."""
    archive = read_archive(path)
    little = _check_records(archive)
    stream = archive.read("data.pkl")
    where = f"{path}: data.pkl"
    walked = walk(stream, where=where)
    if walked.end != len(stream):
        raise Hostile(f"{len(stream) - walked.end} bytes follow the pickle", where=where)
    opaque = screen(walked, where=where, keep_suspicious=keep_suspicious)
    found = survey(walked.root, where)
    storages = {
        name[5:]: Stored(r.offset, r.nbytes, r.crc32)
        for name, r in archive.records.items()
        if name.startswith("data/")
    }
    check_storages(found, storages, path)
    contents = Contents(path, stream, walked, found, storages, archive=archive, little=little)
    return contents, opaque


def _check_records(archive: Archive) -> bool:
    """The records that make a zip a torch file are there; returns whether it is little-endian."""
    records, path = archive.records, archive.path
    if "constants.pkl" in records or any(n.startswith("code/") for n in records):
        raise NotACheckpoint(TORCHSCRIPT, where=path, remedy=TORCHSCRIPT_REMEDY)
    if "data.pkl" not in records:
        raise NotACheckpoint("a zip without a data.pkl, so not a torch file", where=path)
    if "version" not in records and ".data/version" not in records:
        raise Damaged("the record version is missing", where=path, remedy="save it again with torch.save")
    if "byteorder" not in records:
        return True
    order = archive.read("byteorder")
    if order not in (b"little", b"big"):
        raise Damaged(f"byteorder is {order!r}, should be little or big", where=path)
    return order == b"little"
