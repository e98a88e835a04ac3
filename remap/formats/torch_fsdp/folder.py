"""The ``torch-fsdp`` format: the rank files of one save, joined."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from remap.errors import Damaged, InputError, RemapError, UsageError
from remap.expr import Expr
from remap.formats.base import OutFile, WriteOptions
from remap.formats.chunks import assemble
from remap.formats.companions import companions, read_config
from remap.formats.torch_files import SUFFIXES
from remap.formats.torch_fsdp.names import BESIDE, family, numbered
from remap.formats.torch_fsdp.parts import Part, kind_of, read_part
from remap.formats.torch_locate import Place, beside, dotted, follow, locate, resolve
from remap.formats.torch_state import Contents, locate_tensor
from remap.formats.torch_zip import is_torch, read_zip
from remap.formats.zip_container import read_archive
from remap.pickles.graph import key_of, mapping_pairs, plain
from remap.pickles.nodes import Value
from remap.types import Catalog, Entry, TensorSpec

FLAT = "_flat_param"
_MARKS = (b"DTensor", b"ShardedTensor")


class TorchFsdp:
    """The ``torch-fsdp`` format: see the package's docstring."""

    name = "torch-fsdp"
    title = "rank files of torch FSDP (DTensor or ShardedTensor)"

    def find(self, path: Path) -> Sequence[Path]:
        """The first rank's file of every save at ``path``."""
        if path.is_file():
            return siblings(path)[:1] if is_rank_file(path) else []
        found: dict[Path, None] = {}
        seen: set[Path] = set()
        for file in sorted(p for p in path.iterdir() if p.suffix in SUFFIXES):
            if file not in seen and is_rank_file(file):
                ranks = siblings(file)
                seen.update(ranks)
                found[ranks[0]] = None
        return [p for p in found if not BESIDE.match(p.name)] or list(found)

    def claims(self, root: Path) -> Iterable[Path]:
        """All ranks' files, and what the trainer saved of every rank beside them."""
        yield from siblings(root)
        for path in root.parent.iterdir():
            if path.suffix in SUFFIXES and numbered(path.name) and BESIDE.match(path.name):
                yield path

    def open(self, path: Path, *, at: str | None = None) -> Catalog:
        """Read the pickle of every rank's file. Raises Damaged, InputError, UsageError."""
        files = [_read(p) for p in siblings(path)]
        first = files[0]
        root, survey = first.contents.walked.root, first.contents.survey
        place = locate(root, survey, path, required=True) if at is None else resolve(root, at, path)
        assert place is not None
        tensors = [dict(_tensors(f, place, deep=at is not None)) for f in files]
        _refuse_local(path, tensors[0])
        entries = _Joined(files, tensors).entries()
        if not entries:
            raise InputError(f"no tensors at {dotted(place)!r}", where=path)
        return Catalog(
            format=self.name,
            root=path,
            files=tuple(sorted(f.path for f in files)),
            entries=entries,
            config=read_config(path.parent),
            companions=companions(path.parent),
            extras=tuple(beside(root, place, survey)),
            opaque=tuple(sorted({name for f in files for name in f.opaque})),
            peek=lambda name: plain(follow(root, resolve(root, name, path))),
        )

    def lay_out(self, tensors: Mapping[str, Expr], source: Catalog, options: WriteOptions) -> list[OutFile]:
        raise UsageError(
            "rank files are read only",
            remedy="write a DCP folder (--to dcp), which loads on any number of ranks, or --to safetensors",
        )


FORMAT = TorchFsdp()


@dataclass(frozen=True, slots=True)
class _File:
    """One rank's file."""

    path: Path
    number: int
    contents: Contents
    opaque: tuple[str, ...]


def is_rank_file(path: Path) -> bool:
    """True for a torch file whose pickle names DTensor or ShardedTensor."""
    if path.suffix not in SUFFIXES or not is_torch(path):
        return False
    try:
        stream = read_archive(path).read("data.pkl")
    except (RemapError, KeyError):
        return False  # the torch format says what is wrong with it
    return any(mark in stream for mark in _MARKS) and b"torch.distributed" in stream


def siblings(path: Path) -> list[Path]:
    """The files of the save that a rank's file is of, by rank: it alone where it was saved by one rank."""
    try:
        file = _read(path)
        nodes = [(key, node) for key, node in _tensors(file, (), deep=True) if kind_of(node)]
        alone = {read_part(node, file.contents, key).ranks for key, node in nodes} == {1}
    except RemapError:
        alone = False  # opening it says what is wrong
    return [path] if alone else family(path)


def _read(path: Path) -> _File:
    contents, opaque = read_zip(path)
    found = numbered(path.name)
    return _File(path, found.number if found else 0, contents, opaque)


def _tensors(file: _File, place: Place, *, deep: bool) -> Iterator[tuple[str, Value]]:
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


def _refuse_local(path: Path, tensors: Mapping[str, Value]) -> None:
    """LOCAL_STATE_DICT of FSDP1: flat tensors, and nothing says what is where in them."""
    flat = [k for k, v in tensors.items() if k.rpartition(".")[2] == FLAT and kind_of(v) == "ShardedTensor"]
    if flat:
        raise InputError(
            "FSDP's LOCAL_STATE_DICT: every rank's slice of flat tensors. Which parameters lie in them, in "
            "which shapes, with how much padding between them, only the program knew that saved them",
            where=path,
            problems=flat,
            remedy="load these files with that program on as many ranks, then save with "
            "StateDictType.SHARDED_STATE_DICT or FULL_STATE_DICT, or with torch.distributed.checkpoint; "
            "remap reads all of these",
        )


class _Joined:
    """The parts of all files, key by key."""

    def __init__(self, files: Sequence[_File], tensors: Sequence[Mapping[str, Value]]) -> None:
        self._files = files
        self._plain: dict[str, Entry] = {}
        self._parts: dict[str, list[tuple[_File, Part]]] = {}
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
        missing = sorted(set(range(wanted)) - set(ranks)) if len(self._files) > 1 or wanted > 1 else []
        if missing:
            raise Damaged(
                f"{wanted} ranks saved this, the files of {len(missing)} are missing",
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
