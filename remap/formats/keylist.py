"""A key list: names, shapes and dtypes without tensors. Read-only; it has no bytes to convert.

Three spellings are read:

    {key: [shape, dtype]}                              what ``remap keys`` writes
    {file: {key: [shape, dtype]}}                      DeepSpeed layer files; layer_02-... gives "2.<key>"
    {"weight_map": {key: file}}                        a Hugging Face index without its shards: names only

``__metadata__`` beside the keys may say which are buffers and which are tied (see ``METADATA``).
A file name may end in ``.json`` or ``.json.gz``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from remap.documents import parse_json, read_document, unzipped
from remap.dtypes import dtype
from remap.errors import Damaged, UsageError
from remap.expr import Expr
from remap.formats.base import OutFile, WriteOptions
from remap.formats.deepspeed.names import layer_of
from remap.types import Catalog, Entry, TensorSpec

METADATA = "__metadata__"
"""No key, but what is known beside them: ``buffers`` (a list), ``ties`` (key -> first key)."""
MADE_OF = ("keys", "model")
"""Formats whose metadata says it."""
MOST = 1 << 63
"""Bytes, or elements: more than any file system holds."""
UNKNOWN = TensorSpec(dtype("uint8"), (0,))
"""What is put for a tensor of which only the name is known."""


class KeyList:
    """The ``keys`` format: see the module's docstring."""

    name = "keys"
    title = "key list (JSON, no tensors)"

    def find(self, path: Path) -> Sequence[Path]:
        """``path`` where it is a JSON file that is no index of shards lying beside it."""
        if not path.is_file() or not path.name.endswith((".json", ".json.gz")):
            return []
        if path.name.endswith(".index.json"):
            shards = _load(path).get("weight_map")
            there = isinstance(shards, dict) and any((path.parent / str(s)).exists() for s in shards.values())
            return [] if there else [path]
        return [path]

    def open(self, path: Path, *, at: str | None = None) -> Catalog:
        """Read the list. Raises Damaged where an entry is none of the spellings above."""
        document = _load(path)
        names = document.get("weight_map")
        if isinstance(names, dict) and all(isinstance(v, str) for v in names.values()):
            entries = {k: Entry(k, UNKNOWN) for k in names}
            warnings: tuple[str, ...] = ("the list has names only; shapes and dtypes are not checked",)
        else:
            entries, warnings = _entries(path, document), ()
        if not entries:
            raise Damaged("the key list is empty", where=path)
        known = _metadata(document, path)
        return Catalog(self.name, path, (path,), entries, metadata=known, warnings=warnings)

    def lay_out(self, tensors: Mapping[str, Expr], source: Catalog, options: WriteOptions) -> list[OutFile]:
        raise UsageError("a key list is not an output format", remedy="use `remap keys PATH -o keys.json`")


FORMAT = KeyList()


def _load(path: Path) -> dict[str, object]:
    data = read_document(path)
    document = parse_json(unzipped(data, path) if path.suffix == ".gz" else data, "a key list", path)
    if not isinstance(document, dict):
        raise Damaged("not a key list: a JSON object is expected", where=path)
    return document


def _entries(path: Path, document: Mapping[str, object]) -> dict[str, Entry]:
    entries: dict[str, Entry] = {}
    wrong = []
    specs: dict[tuple[object, ...], TensorSpec] = {}  # a million keys have a few hundred of them
    for key, value in document.items():
        if key == METADATA:
            continue
        inner: Mapping[str, Any] = {key: value}
        if isinstance(value, dict):
            layer = layer_of(key)
            inner = inner if layer is None else {f"{layer.index}.{k}": v for k, v in value.items()}
        for name, pair in inner.items():
            try:
                shape, kind = pair
                known = (kind, *shape)
                if known not in specs:
                    specs[known] = _spec(kind, shape)
                entries[name] = Entry(name, specs[known])
            except (TypeError, ValueError, UsageError):
                wrong.append(f"{name}: {json.dumps(pair)[:80]}")
    if wrong:
        raise Damaged("entries are not [shape, dtype]", where=path, problems=wrong)
    return entries


def _spec(kind: str, shape: Sequence[object]) -> TensorSpec:
    """Raises ValueError for sizes that are none, or more bytes than any file can have."""
    sizes = tuple(s for s in shape if type(s) is int and 0 <= s < MOST)
    spec = TensorSpec(dtype(kind), sizes)
    if len(sizes) != len(shape) or spec.nbytes >= MOST:
        raise ValueError(shape)
    return spec


class _Known(msgspec.Struct):
    """What the list may say beside its keys."""

    buffers: list[str] = []
    ties: dict[str, str] = {}


def _metadata(document: Mapping[str, object], path: Path) -> dict[str, str]:
    """What the list says beside its keys, each as JSON text. Raises Damaged."""
    found = document.get(METADATA, {})
    try:
        msgspec.convert(found, _Known)
    except msgspec.ValidationError as e:
        raise Damaged(
            f"{METADATA} is not what a key list has: {e}",
            where=path,
            remedy="buffers is a list of keys, ties gives a key its first key; remap keys writes both",
        ) from None
    return {k: json.dumps(v) for k, v in found.items()} if isinstance(found, dict) else {}


def dump(catalog: Catalog) -> str:
    """The key list of a catalog, as text: what ``remap keys`` writes."""
    known = {
        k: json.loads(catalog.metadata[k])
        for k in ("buffers", "ties")
        if catalog.format in MADE_OF and k in catalog.metadata
    }
    if ties := catalog.aliases:
        known["ties"] = dict(ties)
    lines = [f"{json.dumps(METADATA)}: {json.dumps(known)}"] if known else []
    lines += [
        f"{json.dumps(k)}: {json.dumps([list(e.spec.shape), e.spec.dtype.name])}"
        for k, e in catalog.entries.items()
    ]
    return "{" + ",\n ".join(lines) + "}\n"
