"""The rank files of one save, read and joined key by key."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from remap.errors import Damaged, InputError
from remap.formats.absent import absent
from remap.formats.chunks import assemble
from remap.formats.torch.file import read_zip
from remap.formats.torch.locate import Place, follow
from remap.formats.torch.state import Contents, locate_tensor
from remap.formats.torch_fsdp.names import numbered
from remap.formats.torch_fsdp.parts import Part, kind_of, read_part
from remap.pickles.graph import key_of, mapping_pairs
from remap.pickles.nodes import Value
from remap.types import Entry, TensorSpec


@dataclass(frozen=True, slots=True)
class RankFile:
    """One rank's file; ``number`` is that in its name."""

    path: Path
    number: int
    contents: Contents
    opaque: tuple[str, ...]


def read_file(path: Path) -> RankFile:
    """Read the headers of one file. Raises InputError."""
    contents, opaque = read_zip(path)
    found = numbered(path.name)
    return RankFile(path, found.number if found else 0, contents, opaque)


def tensors_of(file: RankFile, place: Place, *, deep: bool) -> Iterator[tuple[str, Value]]:
    """(key, node) of the tensors at ``place``; with ``deep`` also of those in dicts below it."""
    waiting: list[tuple[str, Value]] = [("", follow(file.contents.walked.root, place))]
    while waiting:
        prefix, node = waiting.pop()
        below: list[tuple[str, Value]] = []
        for key, value in mapping_pairs(node) or ():
            name = f"{prefix}{key_of(key)}"
            if id(value) in file.contents.survey.tensors:
                yield name, value
            elif deep and key_of(key) is not None:
                below.append((f"{name}.", value))
        waiting += reversed(below)


class Joined:
    """The parts of all files, key by key."""

    def __init__(self, files: Sequence[RankFile], tensors: Sequence[Mapping[str, Value]]) -> None:
        self._files = files
        self._plain: dict[str, Entry] = {}
        self._parts: dict[str, list[tuple[RankFile, Part]]] = {}
        for file, found in zip(files, tensors, strict=True):
            for key, node in found.items():
                where = f"{file.path}: {key}"
                if kind_of(node):
                    part = read_part(node, file.contents, where)
                    self._parts.setdefault(key, []).append((file, part))
                elif key not in self._plain:
                    self._plain[key] = _whole(key, node, file.contents, where)
        self._order = list(dict.fromkeys(key for found in tensors for key in found))

    def entries(self) -> dict[str, Entry]:
        """The entries of the whole; a tensor that every rank has whole is the first rank's."""
        self._check_ranks()
        return {key: self._joined(key) if key in self._parts else self._plain[key] for key in self._order}

    def _joined(self, key: str) -> Entry:
        parts = self._parts[key]
        where = f"{self._files[0].path.parent}: {key}"
        specs = {p.spec for _, p in parts}
        if len(specs) > 1:
            raise Damaged(
                "the ranks disagree on what the whole is: files of two saves",
                where=where,
                problems=[f"{f.path.name}: {p.spec}" for f, p in parts],
            )
        spec = specs.pop()
        return Entry(key, spec, assemble(spec, [b for _, p in parts for b in p.boxes], where))

    def _check_ranks(self) -> None:
        """Every rank is there once."""
        folder = self._files[0].path.parent
        ranks: dict[int, set[str]] = {}
        wanted = 0
        for found in self._parts.values():
            for file, part in found:
                ranks.setdefault(file.number if part.rank is None else part.rank, set()).add(file.path.name)
                wanted = max(wanted, part.ranks)
        doubled = [f"rank {r}: {', '.join(sorted(names))}" for r, names in ranks.items() if len(names) > 1]
        if doubled:
            raise Damaged(
                "files of one rank are here twice",
                where=folder,
                problems=doubled,
                remedy="move the stray ones away",
            )
        number, missing = absent(ranks, wanted)
        if number and (len(self._files) > 1 or wanted > 1):
            raise Damaged(
                f"{wanted} ranks saved this, the files of {number} are missing",
                where=folder,
                problems=[f"rank {r}" for r in missing],
                remedy="fetch the missing files into the same folder",
            )


def _whole(key: str, node: Value, contents: Contents, where: str) -> Entry:
    """A tensor that is no part of another: a buffer."""
    ref = contents.survey.tensors[id(node)]
    if ref.dtype is None:
        raise InputError(f"the tensor is {ref.kind}", where=where)
    spec = TensorSpec(ref.dtype, ref.shape)
    return Entry(key, spec, locate_tensor(contents, ref, spec))
