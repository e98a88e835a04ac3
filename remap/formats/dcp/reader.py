"""Opens a DCP folder: its metadata and the headers of the items that were asked for make a catalog."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from remap.errors import Damaged
from remap.formats.chunks import Box, assemble
from remap.formats.companions import companions, read_config
from remap.formats.dcp.items import Items
from remap.formats.dcp.metadata import Metadata, Tensor, merge, read_metadata
from remap.formats.dcp.tree import Selection, select
from remap.types import Catalog, Entry, Location, Scattered, TensorSpec

METADATA = ".metadata"
SUFFIX = ".distcp"
UNFINISHED = ".metadata.tmp"
_OF_RANK = re.compile(r"__(\d+)\.metadata")


@dataclass(frozen=True)
class Folder:
    """A DCP folder that was read: what a writer needs to carry the rest of it along."""

    path: Path
    metadata: Metadata
    selection: Selection


def find(path: Path) -> list[Path]:
    """The DCP folder that ``path`` is, or is a file of; [] where it is none."""
    if path.is_dir():
        folder = path
    elif path.name in (METADATA, UNFINISHED) or path.suffix == SUFFIX or _OF_RANK.fullmatch(path.name):
        folder = path.parent
    else:
        return []
    if _metadata_files(folder) or distcp_files(folder) or (folder / UNFINISHED).is_file():
        return [folder]
    return []


def distcp_files(folder: Path) -> list[Path]:
    """The ``.distcp`` files of a folder, sorted."""
    return sorted(p for p in folder.iterdir() if p.suffix == SUFFIX and p.is_file())


def _metadata_files(folder: Path) -> list[Path]:
    """``.metadata``; without it what each rank noted, by rank (torch's ``use_collectives=False``)."""
    if (folder / METADATA).is_file():
        return [folder / METADATA]
    ranks = [(int(m[1]), p) for p in folder.iterdir() if (m := _OF_RANK.fullmatch(p.name)) and p.is_file()]
    return [p for _, p in sorted(ranks)]


def open_folder(path: Path, at: str | None, fmt: str) -> Catalog:
    """The catalog of a DCP folder. Raises Damaged, Hostile, InputError, UsageError."""
    noted = _metadata_files(path)
    if not noted:
        raise Damaged(
            "there is no .metadata, which DCP writes last: the save did not finish",
            where=path,
            remedy="fetch .metadata, or take an earlier step; without it nobody knows what lies where",
        )
    metadata = merge([read_metadata(p) for p in noted])
    selection = select(metadata, at, path)
    used = {c.item.file for t in metadata.tensors.values() for c in t.chunks}
    used |= {i.file for i in metadata.objects.values()}
    _check_files(path, used)
    with Items(path) as items:
        entries = {
            key: Entry(key, *locate(path, name, t, items))
            for key, name in selection.names.items()
            for t in (metadata.tensors[name],)
        }
    stray = [p.name for p in distcp_files(path) if p.name not in used]
    folder = Folder(path, metadata, selection)
    return Catalog(
        format=fmt,
        root=path,
        files=tuple(sorted([*noted, *(path / f for f in used)])),
        entries=entries,
        config=read_config(path),
        opaque=metadata.opaque,
        extras=selection.extras,
        companions=companions(path),
        warnings=tuple(f"{name} belongs to another save: .metadata does not name it" for name in stray),
        native=folder,
    )


def _check_files(folder: Path, names: Iterable[str]) -> None:
    missing = sorted(n for n in names if not (folder / n).is_file())
    if missing:
        raise Damaged(
            f"{len(missing)} of the files that .metadata names are missing",
            where=folder,
            problems=missing,
            remedy="fetch the missing files into the same folder",
        )


def locate(folder: Path, name: str, tensor: Tensor, items: Items) -> tuple[TensorSpec, Location | Scattered]:
    """What a tensor is, and where its bytes lie. Raises Damaged."""
    spec = TensorSpec(tensor.dtype, tensor.shape)
    boxes = [
        Box(c.offsets, c.sizes, items.tensor(c.item, TensorSpec(tensor.dtype, c.sizes), name))
        for c in tensor.chunks
    ]
    if not boxes and 0 in tensor.shape:
        return spec, Location(folder / METADATA, 0)
    return spec, assemble(spec, boxes, f"{folder}: {name}")
