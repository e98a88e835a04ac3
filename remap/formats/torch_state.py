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

from remap.errors import Damaged, InputError, NotACheckpoint, UsageError
from remap.formats.zip_container import Archive
from remap.pickles.graph import Opaque, attributes, key_of, lookup, mapping_pairs, plain
from remap.pickles.nodes import Call, List, Text, Value
from remap.pickles.survey import Survey
from remap.pickles.tensors import TensorRef
from remap.pickles.walk import Walk
from remap.types import Entry, Location, TensorSpec

WRAPPERS = ("module", "model", "state_dict", "model_state_dict")
"""Names under which training loops keep the model: DeepSpeed, Megatron, Lightning and fairseq, tutorials."""

ODD = re.compile("[\\0\\ud800-\\udfff]")
"""NUL and lone surrogates, which no other format can have in a key."""

NOT_MODEL = ("optimizer", "lr_scheduler", "scheduler", "scaler", "rng", "random")
"""Beginnings of names whose tensors are not the model's."""

Step = str | int
Path_ = tuple[Step, ...]


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

    @property
    def keys(self) -> tuple[object, ...]:
        """The keys at the top level of the file, () where its root is no dict."""
        return tuple(plain(k) for k, _ in mapping_pairs(self.contents.walked.root) or ())

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


def make_file(contents: Contents, opaque: tuple[str, ...], at: str | None, state_dict: bool) -> TorchFile:
    """Find the state dict of a file whose pickle was walked, and read its entries.

    ``state_dict=False``: a file without one opens too. Raises NotACheckpoint, UsageError where
    ``at`` is wrong or needed, InputError for tensors that can't be read.
    """
    root, tensors = contents.walked.root, contents.survey.tensors
    place = _locate(contents, required=state_dict) if at is None else _resolve(root, at, contents.path)
    if place is None:
        entries: dict[str, Entry] = {}
        extras = list(_beside(root, (), contents.survey))
    else:
        node = _follow(root, place)
        contents = Contents(**{**vars(contents), "node": node})
        entries = _entries(contents)
        if not entries and state_dict:
            raise NotACheckpoint(f"no tensors at {_dotted(place)!r}", where=contents.path)
        extras = list(_beside(root, place, contents.survey))
    warnings = _warnings(contents, entries)
    dotted = None if place is None else _dotted(place)
    return TorchFile(
        contents.path, entries, dotted, opaque, tuple(warnings), len(tensors), tuple(extras), contents
    )


def _warnings(contents: Contents, entries: Mapping[str, Entry]) -> Iterator[str]:
    if not contents.little:
        yield f"{contents.path.name} is big-endian: it can be renamed, its values can't be read"
    odd = [k for k in entries if ODD.search(k)]
    if odd:
        yield f"{len(odd)} keys hold NUL or lone surrogates, which other formats can't ({odd[0]!a})"


def _dotted(place: Path_) -> str:
    return ".".join(map(str, place))


def _follow(node: Value, place: Path_) -> Value:
    for step in place:
        node = lookup(node, step)[1]
    return node


def _resolve(root: Value, at: str, path: Path) -> Path_:
    """The path that ``at`` means: ``a.b`` is a key, or ``b`` in ``a``. Raises UsageError."""
    if not at:
        return ()
    names = {key_of(k): v for k, v in mapping_pairs(root) or ()}
    for name, value in names.items():
        if str(name) == at and name is not None:
            return (name,)
        if name is not None and at.startswith(f"{name}."):
            try:
                return (name, *_resolve(value, at[len(str(name)) + 1 :], path))
            except UsageError:
                continue
    raise UsageError(
        f"there is no {at!r} in it",
        where=path,
        problems=[repr(n) for n in names],
        remedy="give --at one of these, and names below it after a dot",
    )


def _direct(node: Value, survey: Survey) -> int:
    """Number of tensors that are values of this very dict."""
    return sum(id(v) in survey.tensors for _, v in mapping_pairs(node) or ())


def _dicts(node: Value, place: Path_, seen: set[int], survey: Survey) -> Iterator[tuple[Path_, Value]]:
    """Dicts with tensors as values, by path, each object once; optimizers and the like left out."""
    if id(node) in seen:
        return
    seen.add(id(node))
    if _direct(node, survey):
        yield place, node
    for key, value in mapping_pairs(node) or ():
        if type(key) is Text and not key.text.startswith(NOT_MODEL):
            yield from _dicts(value, (*place, key.text), seen, survey)


def _locate(contents: Contents, required: bool) -> Path_ | None:
    """Where the state dict lies. Raises NotACheckpoint, or UsageError where several may be meant."""
    root, survey = contents.walked.root, contents.survey
    place: Path_ = ()
    node = root
    while True:
        wrapped = {
            id(v): (k.text, v)
            for k, v in reversed(mapping_pairs(node) or ())
            if type(k) is Text and k.text in WRAPPERS and any(_dicts(v, (), set(), survey))
        }
        if len(wrapped) > 1:
            _ambiguous(contents.path, [((*place, name), v) for name, v in wrapped.values()], survey)
        if not wrapped:
            break
        ((name, node),) = wrapped.values()
        place = (*place, name)
    if _direct(node, survey):
        return place
    found = list(_dicts(node, place, set(), survey))
    if len(found) > 1:
        _ambiguous(contents.path, found, survey)
    if found:
        return found[0][0]
    if required:
        raise NotACheckpoint(
            f"no state dict: the file holds {_describe(root, survey)}",
            where=contents.path,
            remedy="a state dict is a dict of tensors: torch.save(model.state_dict(), path)",
        )
    return None


def _ambiguous(path: Path, found: list[tuple[Path_, Value]], survey: Survey) -> None:
    raise UsageError(
        f"{len(found)} parts of the file may be the state dict",
        where=path,
        problems=[f"{_dotted(p)}: {sum(1 for _ in _below(v, survey))} tensors" for p, v in found],
        remedy="say which is meant, for example --at " + _dotted(found[0][0]),
    )


def _below(node: Value, survey: Survey) -> Iterator[TensorRef]:
    for _, d in _dicts(node, (), set(), survey):
        yield from (survey.tensors[id(v)] for _, v in mapping_pairs(d) or () if id(v) in survey.tensors)


def _describe(root: Value, survey: Survey) -> str:
    """What the root is, for the message that it is no state dict."""
    if id(root) in survey.tensors:
        return "a single tensor"
    if type(root) is Call and mapping_pairs(root) is None:
        module = any(key_of(k) == "_modules" for k, _ in attributes(root))
        what = "a whole pickled module" if module else "an object"
        return f"{what} of class {root.name}, whose code alone knows what its tensors are called"
    if isinstance(root, (tuple, List)):
        return "a list"
    pairs = mapping_pairs(root)
    if pairs is None:
        return f"a {type(plain(root)).__name__}"
    names = [str(plain(k)) for k, _ in pairs[:8]]
    return f"a dict of {', '.join(names)}" if names else "an empty dict"


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
        entries[key.text] = Entry(key.text, spec, _location(contents, ref, spec))
    if problems:
        raise InputError(
            f"{len(problems)} tensors can't be read",
            where=contents.path,
            problems=problems,
            remedy="save the model again with plain dense tensors",
        )
    return entries


def _location(contents: Contents, ref: TensorRef, spec: TensorSpec) -> Location | None:
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


def _beside(root: Value, place: Path_, survey: Survey) -> Iterator[str]:
    """Names of what lies beside the state dict, and beside the tensors in it."""
    node = root
    for depth, step in enumerate(place):
        for key, _ in mapping_pairs(node) or ():
            if key_of(key) != step:
                name = plain(key)
                yield _dotted((*place[:depth], "<object>" if isinstance(name, Opaque) else str(name)))
        node = lookup(node, step)[1]
    if not place and mapping_pairs(root) is None:
        return
    for key, value in mapping_pairs(node) or ():
        if type(key) is not Text or id(value) not in survey.tensors:
            yield _dotted((*place, str(plain(key))))


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
