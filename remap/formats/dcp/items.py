"""Opens the items of a DCP folder: torch.save archives that lie one after another in ``.distcp`` files.

An item is a zip of its own, at any byte of the file; its tensor's bytes are a record of it. Only
headers and the small pickles are read. Source: torch ``distributed/checkpoint/filesystem.py``
(``_write_item``).
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from zlib import crc32

from remap.errors import Damaged, Hostile, InputError
from remap.formats.dcp.metadata import Item
from remap.formats.slices import FileBytes
from remap.formats.torch.container import Archive, read_window
from remap.formats.torch.state import is_row_major
from remap.pickles.graph import plain
from remap.pickles.nodes import Value
from remap.pickles.screen import screen
from remap.pickles.survey import Survey, survey
from remap.pickles.walk import walk
from remap.types import Location, TensorSpec

OPEN_FILES = 64
KEPT = 4096
"""Walked pickles that are kept: a model's layers, and their shards, have but a few different ones."""


@dataclass(frozen=True, slots=True)
class _Pickle:
    """A walked and screened pickle."""

    root: Value
    found: Survey


class Items:
    """The open files of a folder; use as a context manager."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: dict[str, FileBytes] = {}
        self._stack = ExitStack()
        self._walked: dict[bytes, _Pickle] = {}

    def __enter__(self) -> Items:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()
        self._files.clear()

    def tensor(self, item: Item, spec: TensorSpec, name: str) -> Location:
        """Where the bytes of a tensor item lie. Raises Damaged where it isn't a tensor of ``spec``."""
        archive, pickle = self._open(item, name)
        ref = pickle.found.tensors.get(id(pickle.root))
        where = f"{archive.path}: {name}"
        if ref is None or ref.dtype is None or ref.storage is None:
            what = ref.kind if ref else "not a tensor"
            raise InputError(f"its bytes at {item.offset} are {what}", where=where)
        if (ref.dtype, ref.shape) != (spec.dtype, spec.shape):
            raise Damaged(
                f"{TensorSpec(ref.dtype, ref.shape)} is stored where .metadata says {spec}", where=where
            )
        record = archive.records.get(f"data/{ref.storage.key}")
        if record is None or record.nbytes != ref.storage.nbytes:
            raise Damaged(f"storage {ref.storage.key} is not as its pickle says", where=where)
        if "byteorder" in archive.records and self._read(item, archive, "byteorder", name) != b"little":
            raise InputError("it was written on a big-endian machine", where=where)
        dense = is_row_major(ref.shape, ref.strides)
        whole = dense and ref.offset == 0 and spec.nbytes == record.nbytes
        return Location(
            archive.path,
            record.offset + ref.offset * ref.itemsize,
            None if dense else ref.strides,
            record.crc32 if whole else None,
        )

    def value(self, item: Item, name: str) -> object:
        """The plain value of an item that is no tensor; objects in it are ``graph.Opaque`` markers."""
        return plain(self._open(item, name)[1].root)

    def _open(self, item: Item, name: str) -> tuple[Archive, _Pickle]:
        path = self._folder / item.file
        archive = read_window(path, self._file(item.file, name), item.offset, item.nbytes)
        if "data.pkl" not in archive.records:
            raise Damaged(f"the item at byte {item.offset} is no torch file", where=f"{path}: {name}")
        stream = self._read(item, archive, "data.pkl", name)
        pickle = self._walked.get(stream)
        if pickle is None:
            where = f"{path}: {name}: data.pkl"
            walked = walk(stream, where=where)
            if walked.end != len(stream):
                raise Hostile(f"{len(stream) - walked.end} bytes follow the pickle", where=where)
            screen(walked, where=where)
            pickle = _Pickle(walked.root, survey(walked.root, where))
            if len(self._walked) < KEPT:
                self._walked[stream] = pickle
        return archive, pickle

    def _read(self, item: Item, archive: Archive, record: str, name: str) -> bytes:
        """The bytes of a small record, its checksum compared."""
        found = archive.records[record]
        data = self._file(item.file, name)[found.offset : found.offset + found.nbytes]
        if crc32(data) != found.crc32:
            raise Damaged(f"record {record} does not have its checksum", where=f"{archive.path}: {name}")
        return data

    def _file(self, file: str, name: str) -> FileBytes:
        if file not in self._files:
            if len(self._files) >= OPEN_FILES:
                self.__exit__()
            path = self._folder / file
            try:
                self._files[file] = self._stack.enter_context(FileBytes(path))
            except FileNotFoundError:
                raise Damaged(
                    f"the file is missing; it holds {name!r} and maybe more", where=path, remedy="fetch it"
                ) from None
            if not len(self._files[file]):
                raise Damaged("the file is empty", where=path, remedy="fetch it again")
        return self._files[file]
