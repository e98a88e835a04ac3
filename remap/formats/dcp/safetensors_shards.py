"""What DCP's HuggingFaceStorageWriter leaves with ``save_distributed=True``: a safetensors file a rank.

    shard-00001-model-00001-of-00001.safetensors    the parts of tensors that rank 0 had
    shard-00002-model-00001-of-00001.safetensors    ...

Each header says where in its tensor every part begins (``DCP_SHARDING_INFO``). What no file says is
the shape of the whole, which is as far as the parts reach, and how many ranks there were. Read
only. Source: torch ``distributed/checkpoint/hf_storage.py`` and ``_hf_utils.py``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from remap.errors import Damaged, InputError, UsageError
from remap.expr import Expr
from remap.formats.absent import absent
from remap.formats.base import OutFile, WriteOptions
from remap.formats.chunks import Box, assemble
from remap.formats.companions import companions, read_config
from remap.formats.safetensors_header import looks_like_safetensors, read_header
from remap.types import Catalog, Entry, Location, TensorSpec

INFO = "DCP_SHARDING_INFO"
_SHARD = re.compile(r"shard-(\d{5,})-model-(\d{5,})-of-(\d{5,})\.safetensors")


class _Part(msgspec.Struct):
    saved_offsets: list[int]


class SafetensorsShards:
    """The ``dcp-safetensors`` format: see the module's docstring."""

    name = "dcp-safetensors"
    title = "safetensors shards of torch.distributed.checkpoint"

    def find(self, path: Path) -> Sequence[Path]:
        """The first of the shards at ``path``."""
        files = _shards(path if path.is_dir() else path.parent)
        return files[:1] if path.is_dir() or path in files else []

    def claims(self, root: Path) -> Iterable[Path]:
        """All shards: each alone is a safetensors file, of parts."""
        return _shards(root.parent)

    def open(self, path: Path, *, at: str | None = None) -> Catalog:
        """Read the headers of all shards and join the parts. Raises Damaged, Hostile."""
        if at is not None:
            raise UsageError("a safetensors file has no parts; --at is for torch files", where=path)
        files = _shards(path.parent)
        _check_numbers(files)
        parts: dict[str, list[tuple[Path, Entry, tuple[int, ...]]]] = {}
        for file in files:
            entries, metadata = read_header(file)
            info = _info(file, metadata)
            for key, entry in entries.items():
                offsets = tuple(info[key].saved_offsets) if key in info else (0,) * len(entry.spec.shape)
                parts.setdefault(key, []).append((file, entry, offsets))
        return Catalog(
            format=self.name,
            root=path,
            files=tuple(files),
            entries={key: _entry(key, found, path.parent) for key, found in parts.items()},
            config=read_config(path.parent),
            companions=companions(path.parent),
            warnings=(f"nothing in these files says how many ranks wrote them; {len(files)} files are here",),
        )

    def lay_out(self, tensors: Mapping[str, Expr], source: Catalog, options: WriteOptions) -> list[OutFile]:
        raise UsageError(
            "such shards are read only",
            remedy="write whole tensors (--to safetensors), or a DCP folder (--to dcp)",
        )


FORMAT = SafetensorsShards()


def _shards(folder: Path) -> list[Path]:
    """The shards of a folder, by number: named as torch names them, with sharding info in the header."""
    found = [(m, p) for p in folder.iterdir() if (m := _SHARD.fullmatch(p.name))]
    found.sort(key=lambda f: (int(f[0][3]), int(f[0][1]), int(f[0][2])))
    return [p for _, p in found if looks_like_safetensors(p)]


def _check_numbers(files: Sequence[Path]) -> None:
    """Ranks count from 1 without gaps; the last ones can't be missed, as nothing says how many there were."""
    numbers = {int(m[1]) for f in files if (m := _SHARD.fullmatch(f.name))}
    number, missing = absent([n - 1 for n in numbers], max(numbers))
    if number:
        raise Damaged(
            f"shards of {number} ranks are missing",
            where=files[0].parent,
            problems=[f"rank {n}" for n in missing],
            remedy="fetch the missing files into the same folder",
        )
    if len({m[3] for f in files if (m := _SHARD.fullmatch(f.name))}) > 1:
        raise InputError(
            "shards of two saves are here",
            where=files[0].parent,
            problems=[f.name for f in files],
            remedy="move one of them elsewhere",
        )


def _info(file: Path, metadata: Mapping[str, str]) -> dict[str, _Part]:
    try:
        return msgspec.json.decode(metadata.get(INFO, "{}"), type=dict[str, _Part])
    except msgspec.MsgspecError as e:
        raise Damaged(f"{INFO} in its header can't be read: {e}", where=file) from None


def _entry(key: str, parts: Sequence[tuple[Path, Entry, tuple[int, ...]]], folder: Path) -> Entry:
    """The whole tensor, as large as its parts reach."""
    where = f"{folder}: {key}"
    kinds = {e.spec.dtype for _, e, _ in parts}
    ranks = {len(o) for _, _, o in parts} | {len(e.spec.shape) for _, e, _ in parts}
    if len(kinds) > 1 or len(ranks) > 1:
        raise Damaged(
            "its parts differ in element type or dimensions",
            where=where,
            problems=[f"{file.name}: {e.spec} at {list(o)}" for file, e, o in parts],
        )
    boxes = [Box(o, e.spec.shape, e.location) for _, e, o in parts if isinstance(e.location, Location)]
    reach = zip(*(tuple(o + n for o, n in zip(b.offsets, b.sizes, strict=True)) for b in boxes), strict=True)
    spec = TensorSpec(kinds.pop(), tuple(max(ends) for ends in reach))
    return Entry(key, spec, assemble(spec, boxes, where))
