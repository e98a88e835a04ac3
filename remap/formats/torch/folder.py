"""The ``torch`` format: one file of ``torch.save``, or a folder of shards.

Shards are listed by ``pytorch_model.bin.index.json``, or only numbered
(``pytorch_model-00001-of-00002.bin``). Written from a single torch file, the output carries along
whatever else that file holds; otherwise it is a plain state dict.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from remap.errors import Damaged, UsageError
from remap.expr import Expr, Take
from remap.files import look_ahead
from remap.formats.base import OutFile, WriteOptions
from remap.formats.companions import companions, read_config
from remap.formats.families import check_family, family, firsts
from remap.formats.follow import follow
from remap.formats.index import (
    check_index,
    check_shards_exist,
    has_shards,
    index_file,
    name_shards,
    read_index,
    split_shards,
)
from remap.formats.torch.by_weight import OPTIMIZER, place_of_optimizer, read_optimizer, write_optimizer
from remap.formats.torch.deep import replant
from remap.formats.torch.file import is_torch, read
from remap.formats.torch.state import TorchFile
from remap.formats.torch.writing.emit import check_names, emit
from remap.formats.torch.writing.rebuild import rebuild
from remap.formats.torch.writing.rewrite import rewrite
from remap.types import Catalog, Entry, OptimizerState

NAME = "pytorch_model.bin"
SUFFIXES = (".pt", ".pth", ".bin", ".ckpt")
_SHARD = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})(?P<suffix>\.(bin|pt|pth|ckpt))")
_INDEX = re.compile(r".+\.(bin|pt|pth|ckpt)\.index\.json")
_BESIDE = re.compile(
    r"(training_args|optimizer|scheduler|scaler|random_states_\d+|rng_state.*)\.(bin|pt|pth)"
    r"|.*(zero_pp_rank_|mp_rank_|optim_states).*|layer_\d+-model_.*"
)
"""Torch files in a folder that are no checkpoint of their own: Trainer's, accelerate's, DeepSpeed's."""


class Torch:
    """The ``torch`` format: see the module's docstring."""

    name = "torch"
    title = "torch.save file (.pt, .pth, .bin, .ckpt), or folder of shards"

    def find(self, path: Path) -> Sequence[Path]:
        """Index files, first shards of numbered families, and single files at ``path``."""
        if path.is_dir():
            return _find_in(path)
        if _INDEX.fullmatch(path.name):
            return [path] if has_shards(path) else []
        if not is_torch(path) and not _is_broken(path):
            return []
        for index in sorted(path.parent.glob("*.index.json")):
            if _INDEX.fullmatch(index.name) and path in read_index(index).shards:
                return [index]
        return [family(path, _SHARD)[0]]

    def open(self, path: Path, *, at: str | None = None, keep_suspicious: bool = False) -> Catalog:
        """Read the pickle of every file. Raises NotACheckpoint, Damaged, Hostile, UsageError."""
        if not _INDEX.fullmatch(path.name):
            files = family(path, _SHARD)
            check_family(files, _SHARD)
            return _catalog(path, files, at, keep_suspicious)
        index = read_index(path)
        check_shards_exist(index)
        catalog = _catalog(path, index.shards, at, keep_suspicious)
        assert isinstance(catalog.native, tuple)
        check_index(index, {file.path: file.entries for file in catalog.native})
        return catalog

    def lay_out(self, tensors: Mapping[str, Expr], source: Catalog, options: WriteOptions) -> list[OutFile]:
        """One file, or shards and their index. Raises UsageError."""
        if not tensors:
            raise UsageError("there is no tensor to be written")
        name = options.name or NAME
        groups = split_shards(tensors, options.shard_size)
        if options.under is not None and len(groups) > 1:
            raise UsageError(
                "shards have their tensors at the root", remedy="give --under or --shard-size, not both"
            )
        if len(groups) == 1:
            if options.under is not None:
                return [_nested(name, tensors, source, options)]
            return [_one_file(name, tensors, source)]
        check_names(tensors)
        shards = name_shards(name, groups)
        return [*(emit(n, group) for n, group in shards.items()), index_file(name, shards)]


def _nested(name: str, tensors: Mapping[str, Expr], source: Catalog, options: WriteOptions) -> OutFile:
    """A fresh file with the state dict below its root; the optimizer's state by weight lies beside it."""
    state = source.optimizer() if options.optimizer and source.optimizer else None
    if state is None:
        return emit(name, tensors, at=options.under)
    beside = {OPTIMIZER: write_optimizer(follow(state, tensors))}
    return replace(emit(name, tensors, beside, at=options.under), kept=(state.name,))


def _one_file(name: str, tensors: Mapping[str, Expr], source: Catalog) -> OutFile:
    """One output file: renamed, changed with all else carried along, or fresh."""
    if source.nested is not None:
        tree, left = source.nested(tensors)
        return replace(emit(name, {}, tree), carries=True, left=tuple(left))
    natives = source.native if isinstance(source.native, tuple) else ()
    if len(natives) != 1 or not isinstance(natives[0], TorchFile):
        return emit(name, tensors)
    file = natives[0]
    if file.deep:
        return replant(file, name, tensors)
    renames = {e.entry.key: key for key, e in tensors.items() if isinstance(e, Take)}
    if len(renames) == len(tensors) == len(file.entries) and renames.keys() == file.entries.keys():
        if file.contents.archive is not None:
            return rewrite(file, name, renames)
        return rebuild(file, name, tensors)
    return rebuild(file, name, tensors) if file.extras else emit(name, tensors)


def _is_broken(path: Path) -> bool:
    """A file that has the name of a torch file and the signature of a zip: opening it says what is wrong."""
    if path.suffix not in SUFFIXES or not path.is_file():
        return False
    with path.open("rb") as f:
        head = f.read(262)
    return head.startswith((b"PK\x03\x04", b"\x80\x02")) or head[257:262] == b"ustar"


def _find_in(folder: Path) -> list[Path]:
    indexes = [p for p in sorted(folder.glob("*.index.json")) if _INDEX.fullmatch(p.name)]
    listed = {shard for i in indexes for shard in read_index(i).shards}
    files = sorted(p for p in folder.iterdir() if p.suffix in SUFFIXES and p not in listed)
    files = [p for p in files if not _BESIDE.fullmatch(p.name) and (is_torch(p) or _is_broken(p))]
    return [*indexes, *firsts(files, _SHARD)]


def _catalog(path: Path, files: Sequence[Path], at: str | None, keep_suspicious: bool) -> Catalog:
    look_ahead(files, heads=True)
    read_files = tuple(read(p, at, keep_suspicious=keep_suspicious) for p in files)
    entries: dict[str, Entry] = {}
    twice: list[str] = []
    for file in read_files:
        twice += [f"{key}: again in {file.path.name}" for key in file.entries if key in entries]
        entries.update(file.entries)
    if twice:
        raise Damaged("keys are in two shards", where=path, problems=twice, remedy="remove the stale shards")
    return Catalog(
        format=Torch.name,
        root=path,
        files=tuple(sorted(files)),
        entries=entries,
        config=read_config(path.parent),
        companions=companions(path.parent),
        extras=tuple(name for f in read_files for name in f.extras),
        opaque=tuple(sorted({name for f in read_files for name in f.opaque})),
        warnings=tuple(w for f in read_files for w in f.warnings),
        peek=partial(_peek, read_files),
        native=read_files,
        optimizer=_optimizer(read_files) if at is None else None,
    )


def _optimizer(files: Sequence[TorchFile]) -> Callable[[], OptimizerState] | None:
    """What reads the state by weight that a single file may hold beside the model."""
    root = files[0].contents.walked.root
    place = place_of_optimizer(root) if len(files) == 1 else None
    if place is None:
        return None
    return lambda: read_optimizer(root, place, files[0].entries_below(*place, "state"))


def _peek(files: Sequence[TorchFile], name: str) -> object:
    """The plain value of an extra. Raises KeyError, UsageError where its name is no text."""
    for file in files:
        if name in file.extras:
            return file.peek(name)
    raise KeyError(name)


FORMAT = Torch()
