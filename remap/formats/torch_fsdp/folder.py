"""The ``torch-fsdp`` format: the rank files of one save, joined."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path

from remap.errors import InputError, RemapError, UsageError
from remap.expr import Expr
from remap.formats.base import OutFile, WriteOptions
from remap.formats.companions import companions, read_config
from remap.formats.torch.by_weight import place_of_optimizer, read_optimizer
from remap.formats.torch.container import read_archive
from remap.formats.torch.file import is_torch
from remap.formats.torch.folder import SUFFIXES
from remap.formats.torch.locate import Place, beside, dotted, follow, locate, resolve
from remap.formats.torch_fsdp.joined import Joined, RankFile, read_file, tensors_of
from remap.formats.torch_fsdp.names import BESIDE, family, numbered
from remap.formats.torch_fsdp.parts import kind_of, read_part
from remap.pickles.graph import plain
from remap.pickles.nodes import Value
from remap.types import Catalog, OptimizerState

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
        files = [read_file(p) for p in siblings(path)]
        first = files[0]
        root, survey = first.contents.walked.root, first.contents.survey
        place = locate(root, survey, path, required=True) if at is None else resolve(root, at, path)
        assert place is not None
        tensors = [dict(tensors_of(f, place, deep=at is not None)) for f in files]
        _refuse_local(path, tensors[0])
        entries = Joined(files, tensors).entries()
        if not entries:
            raise InputError(f"no tensors at {dotted(place)!r}", where=path)
        state = place_of_optimizer(root) if at is None else None
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
            optimizer=partial(_optimizer, files, state) if state else None,
        )

    def lay_out(self, tensors: Mapping[str, Expr], source: Catalog, options: WriteOptions) -> list[OutFile]:
        raise UsageError(
            "rank files are read only",
            remedy="write a DCP folder (--to dcp), which loads on any number of ranks, or --to safetensors",
        )


FORMAT = TorchFsdp()


def _optimizer(files: Sequence[RankFile], place: Place) -> OptimizerState:
    """The optimizer's state, its tensors joined over the ranks. Raises Damaged, InputError."""
    found = [dict(tensors_of(f, (*place, "state"), deep=True)) for f in files]
    return read_optimizer(files[0].contents.walked.root, place, Joined(files, found).entries())


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
        file = read_file(path)
        nodes = [(key, node) for key, node in tensors_of(file, (), deep=True) if kind_of(node)]
        alone = {read_part(node, file.contents, key).ranks for key, node in nodes} == {1}
    except RemapError:
        alone = False  # opening it says what is wrong
    return [path] if alone else family(path)


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
