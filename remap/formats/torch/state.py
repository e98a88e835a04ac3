"""A torch file that was read, whichever container it has: its state dict, and what else it carries.

In: a walked pickle and where each storage lies. Out: a TorchFile, the entries of the one state dict
in it. The dict is found below the names that training loops wrap it in; where that is ambiguous,
the candidates are named and ``--at`` decides.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from remap.errors import Damaged, InputError, NotACheckpoint
from remap.formats.torch.container import Archive
from remap.formats.torch.locate import Place, Step, beside, dotted, follow, locate, resolve
from remap.pickles.graph import items_of, key_of, lookup, mapping_pairs, plain
from remap.pickles.nodes import Dict, Text, Value
from remap.pickles.survey import Survey
from remap.pickles.tensors import TensorRef
from remap.pickles.walk import Walk
from remap.types import Entry, Location, TensorSpec

ODD = re.compile("[\\0\\ud800-\\udfff]")
"""NUL and lone surrogates, which no other format can have in a key."""


@dataclass(frozen=True, slots=True)
class Stored:
    """Where a storage lies in the file. ``crc32`` is None where the container keeps none."""

    offset: int
    nbytes: int
    crc32: int | None = None


@dataclass(frozen=True)
class Contents:
    """All of a torch file, for the writers: the stream, its walk, its storages.

    stream    the pickle's bytes; empty for a legacy file
    walked    its nodes
    survey    all tensors and storages in it
    storages  storage key -> place
    node      the state dict, None where there is none
    archive   the zip, None for a legacy file
    little    False where multi-byte elements are big-endian
    """

    path: Path
    stream: bytes
    walked: Walk
    survey: Survey
    storages: Mapping[str, Stored]
    node: Value = None
    archive: Archive | None = None
    little: bool = True


@dataclass(frozen=True)
class TorchFile:
    """A torch file that was read.

    entries   key -> entry of the state dict, in its order; {} where there is none
    at        where the state dict lies, ``""`` for the root; None where there is none
    opaque    classes that are carried along unopened
    warnings  what a user should know
    tensors   number of all tensors in the file
    extras    what the file holds beside those entries, by its path
    deep      key -> node, where the entries lie in dicts below the one that was asked for
    contents  the whole of it, for writers
    """

    path: Path
    entries: Mapping[str, Entry]
    at: str | None
    opaque: tuple[str, ...]
    warnings: tuple[str, ...]
    tensors: int
    extras: tuple[str, ...]
    contents: Contents = field(repr=False, compare=False)
    deep: Mapping[str, Value] = field(default_factory=dict, repr=False, compare=False)

    @property
    def keys(self) -> tuple[object, ...]:
        """The keys at the top level of the file, () where its root is no dict."""
        return tuple(plain(k) for k, _ in mapping_pairs(self.contents.walked.root) or ())

    def peek(self, name: str) -> object:
        """The Python value at a dotted path, as ``extras`` names it. Raises UsageError for another."""
        root = self.contents.walked.root
        return plain(follow(root, resolve(root, name, self.path)))

    def plain(self, *path: Step) -> object:
        """The Python value at ``path``: None, bool, int, float, str, bytes, list, tuple or dict.

        Tensors, objects and classes in it are ``graph.Opaque`` markers. Raises KeyError.
        """
        node = self.contents.walked.root
        for i, step in enumerate(path):
            found, node = lookup(node, step)
            if not found:
                raise KeyError(".".join(map(str, path[: i + 1])))
        return plain(node)

    def entries_at(self, *path: Step) -> dict[str, Entry]:
        """The tensors of the dict at ``path``, {} where there is none. Raises InputError for tensors
        that can't be read."""
        node = follow(self.contents.walked.root, path)
        return _entries(Contents(**{**vars(self.contents), "node": node}))

    def tensor_at(self, *path: Step) -> Entry | None:
        """The tensor at ``path``, which may go through lists; None where something else is there, or
        nothing. Raises InputError for a tensor that can't be read."""
        node = follow(self.contents.walked.root, path)
        name = dotted(path)
        if id(node) not in self.contents.survey.tensors:
            return None
        alone = _dict_of({name: node})
        return _entries(Contents(**{**vars(self.contents), "node": alone}))[name]

    def entries_below(self, *path: Step) -> dict[str, Entry]:
        """The tensors at any depth below ``path``, by their dotted path from there."""
        node = follow(self.contents.walked.root, path)
        found = {dotted(p): n for p, n in _below(node, (), self.contents.survey)}
        return _entries(Contents(**{**vars(self.contents), "node": _dict_of(found)}))

    def node_at(self, *path: Step) -> Value:
        """The node at ``path``, to be written again as it is; None where there is none."""
        return follow(self.contents.walked.root, path)


def make_file(contents: Contents, opaque: tuple[str, ...], at: str | None, state_dict: bool) -> TorchFile:
    """Find the state dict of a file whose pickle was walked, and read its entries.

    ``state_dict=False``: a file without one opens too. Raises NotACheckpoint, UsageError where
    ``at`` is wrong or needed, InputError for tensors that can't be read.
    """
    root = contents.walked.root
    deep: dict[str, Value] = {}
    place = (
        locate(root, contents.survey, contents.path, required=state_dict)
        if at is None
        else resolve(root, at, contents.path)
    )
    if place is None:
        entries: dict[str, Entry] = {}
        extras = list(beside(root, (), contents.survey))
    else:
        node = follow(root, place)
        contents = Contents(**{**vars(contents), "node": node})
        entries = _entries(contents)
        if not entries and at is not None and state_dict:
            deep = {dotted(p): n for p, n in _below(node, (), contents.survey)}
            entries = _entries(Contents(**{**vars(contents), "node": _dict_of(deep)}))
        if not entries and state_dict:
            raise NotACheckpoint(f"no tensors at {dotted(place)!r}", where=contents.path)
        extras = [] if deep else list(beside(root, place, contents.survey))
    warnings = _warnings(contents, entries)
    return TorchFile(
        contents.path,
        entries,
        None if place is None else dotted(place),
        opaque,
        tuple(warnings),
        contents.survey.count,
        tuple(extras),
        contents,
        deep,
    )


def _below(node: Value, place: Place, survey: Survey) -> Iterator[tuple[Place, Value]]:
    """Every tensor below a node, through dicts and lists, by its path from there."""
    if id(node) in survey.tensors:
        yield place, node
        return
    pairs = mapping_pairs(node)
    inside = [(key_of(k), v) for k, v in pairs] if pairs is not None else enumerate(items_of(node) or ())
    for key, value in inside:
        if key is not None:
            yield from _below(value, (*place, key), survey)


def _dict_of(nodes: Mapping[str, Value]) -> Dict:
    return Dict([(Text(key), node) for key, node in nodes.items()])


def _warnings(contents: Contents, entries: Mapping[str, Entry]) -> Iterator[str]:
    if not contents.little:
        yield f"{contents.path.name} is big-endian: it can be renamed, its values can't be read"
    odd = [k for k in entries if ODD.search(k)]
    if odd:
        yield f"{len(odd)} keys hold NUL or lone surrogates, which other formats can't ({odd[0]!a})"


def _entries(contents: Contents) -> dict[str, Entry]:
    """Entries of the state dict. Raises InputError listing every tensor that can't be read."""
    entries: dict[str, Entry] = {}
    problems: list[str] = []
    for key, value in mapping_pairs(contents.node) or ():
        ref = contents.survey.tensors.get(id(value))
        if ref is None or type(key) is not Text:
            continue
        if ref.dtype is None or ref.storage is None:
            problems.append(f"{key.text}: the tensor is {ref.kind}")
            continue
        spec = TensorSpec(ref.dtype, ref.shape)
        entries[key.text] = Entry(key.text, spec, locate_tensor(contents, ref, spec))
    if problems:
        raise InputError(
            f"{len(problems)} tensors can't be read",
            where=contents.path,
            problems=problems,
            remedy="save the model again with plain dense tensors",
        )
    return entries


def locate_tensor(contents: Contents, ref: TensorRef, spec: TensorSpec) -> Location | None:
    """Where a tensor lies; None where its bytes are not in this machine's order."""
    assert ref.storage is not None
    stored = contents.storages[ref.storage.key]
    if not contents.little and ref.itemsize > 1:
        return None
    dense = is_row_major(ref.shape, ref.strides)
    whole = dense and ref.offset == 0 and spec.nbytes == stored.nbytes
    return Location(
        contents.path,
        stored.offset + ref.offset * ref.itemsize,
        None if dense else ref.strides,
        stored.crc32 if whole else None,
    )


def is_row_major(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """True where the elements follow each other in row-major order without gaps."""
    step = 1
    for size, stride in zip(reversed(shape), reversed(strides), strict=True):
        if size != 1 and stride != step:
            return 0 in shape
        step *= size
    return True


def check_storages(survey: Survey, storages: Mapping[str, Stored], path: Path) -> None:
    """Every storage that the pickle names is there, in the size that it says. Raises Damaged."""
    problems = []
    for key, ref in survey.storages.items():
        stored = storages.get(key)
        if stored is None:
            problems.append(f"storage {key}: there are no such bytes")
        elif stored.nbytes != ref.nbytes:
            problems.append(f"storage {key}: {stored.nbytes} bytes, the pickle says {ref.nbytes}")
    if problems:
        raise Damaged(
            "the pickle and the stored bytes disagree",
            where=path,
            problems=problems,
            remedy="fetch the file again; it is cut short or altered",
        )
