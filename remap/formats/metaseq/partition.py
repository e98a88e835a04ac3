"""Model parallelism: how the tensors of N parts are one model's, and how that model is M parts'.

In: the tensors of every part by name, and a partition file, which says of each name how it is divided.
Out: expressions. A name that the file does not know is refused: whether parts hold pieces or copies of it
can't be seen. Copies are compared while they are read. Moments are divided like their parameter.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from itertools import product
from pathlib import Path

import yaml

from remap.documents import read_document
from remap.errors import InputError, PackError, UsageError
from remap.expr import Expr
from remap.partitions.base import Copies, Merging
from remap.partitions.base import Partition as Class
from remap.partitions.registry import read_partition
from remap.partitions.replicated import Replicated
from remap.partitions.stretches import rows

FILE = "opt/metaseq.partition.yml"
LIMIT = 4 << 20
"""Bytes of a file with further names."""
TIED = "tied"


@dataclass(frozen=True)
class Split:
    """How one kind of tensor is divided: by a partition class, None for one that is ``like`` another where
    it is tied to it."""

    cls: Class | None
    like: str = ""
    buffer: bool = False

    @property
    def tied(self) -> bool:
        """Does it depend on what it is tied to?"""
        return self.cls is None


@dataclass(frozen=True)
class Partition:
    """A model family's division.

    splits  pattern of names -> division, the first that matches counts
    units   patterns of the modules that are FSDP units of their own
    """

    splits: tuple[tuple[re.Pattern[str], Split], ...]
    units: tuple[re.Pattern[str], ...] = ()

    def of(self, name: str) -> Split | None:
        """The division of a tensor, None where the name is not known."""
        return next((s for p, s in self.splits if p.fullmatch(name)), None)

    def place(self, name: str) -> int:
        """Where a name comes in the order of the model's parameters."""
        found = (i for i, (p, _) in enumerate(self.splits) if p.fullmatch(name))
        return next(found, len(self.splits))


@cache
def load_partition(path: Path | None = None) -> Partition:
    """How metaseq's decoder is divided; ``path`` is a file with further names, which come first.

    Raises PackError where the file is wrong.
    """
    base = _parse(files("remap_rules").joinpath(*FILE.split("/")).read_bytes(), FILE)
    if path is None:
        return base
    try:
        more = _parse(read_document(path, LIMIT), str(path))
    except InputError as e:
        raise PackError(f"the partition can't be read: {e.what}", where=path) from None
    return Partition((*more.splits, *base.splits), more.units or base.units)


def _parse(data: bytes, where: str) -> Partition:
    try:
        document = yaml.safe_load(data)
        splits = [(p, _split(t)) for t in document["tensors"] for p in _patterns(t["key"])]
        units = tuple(p for u in document.get("units") or () for p in _patterns(u))
    except (yaml.YAMLError, KeyError, TypeError, ValueError, AttributeError, RecursionError) as e:
        raise PackError(f"not a partition: {type(e).__name__}: {e}", where=where) from None
    except PackError as e:
        raise PackError(e.what, where=where, remedy=e.remedy) from None
    return Partition(tuple(splits), units)


def _split(item: Mapping[str, str]) -> Split:
    text = item["split"]
    cls = None if text == TIED else read_partition(text).resolve({})
    return Split(cls, str(item.get("like", "")), bool(item.get("buffer", False)))


def _patterns(key: str) -> Iterator[re.Pattern[str]]:
    """One pattern for each choice among ``{a|b}``, in order; ``*`` is one piece between dots."""
    pieces = re.split(r"(\*|\{[^{}]*\})", key)
    choices = [p[1:-1].split("|") if p.startswith("{") else [p] for p in pieces]
    for chosen in product(*choices):
        yield re.compile("".join(r"[^.]+" if c == "*" else re.escape(c) for c in chosen))


@dataclass(frozen=True)
class Divider:
    """Divides the tensors of one checkpoint.

    classes  name -> partition class, decided from the weights; moments and averages use the same
    copies   what copies that differ become
    """

    classes: Mapping[str, Class]
    copies: Copies = "error"

    def merge(self, parts: Sequence[Mapping[str, Expr]]) -> dict[str, Expr]:
        """The tensors of the whole model. One object under two names stays one object."""
        if len(parts) == 1:
            return dict(parts[0])
        made: dict[tuple[int, ...], Expr] = {}
        out: dict[str, Expr] = {}
        for name in parts[0]:
            pieces = [p[name] for p in parts]
            same = tuple(map(id, pieces))
            if same not in made:
                made[same] = self.classes[name].merge(pieces, Merging(self.copies))
            out[name] = made[same]
        return out

    def cut(self, whole: Mapping[str, Expr], parts: int, number: int) -> dict[str, Expr]:
        """The tensors of part ``number`` of ``parts``."""
        if parts == 1:
            return dict(whole)
        made: dict[int, Expr] = {}
        out: dict[str, Expr] = {}
        for name, expr in whole.items():
            if id(expr) not in made:
                made[id(expr)] = self.classes[name].split(expr, parts)[number]
            out[name] = made[id(expr)]
        return out


def divider(
    partition: Partition,
    parts: Sequence[Mapping[str, Expr]],
    *,
    target: int = 1,
    buffers: Iterable[str] = (),
    tied: bool = False,
    copies: Copies = "error",
    where: object = None,
) -> Divider:
    """Decide how every tensor of ``parts`` is divided, and that ``target`` parts can be made of them.

    buffers  names of what is no parameter: replicated
    tied     what a projection of a single part is, which may be tied to the embedding or not

    Raises InputError naming every tensor that parts lack, and every name that is not known; UsageError
    for sizes that can't be divided.
    """
    if len(parts) == target == 1:
        return Divider({}, copies)
    _check_names(parts, where)
    classes: dict[str, Class] = {}
    unknown: list[str] = []
    known_buffers = set(buffers)
    for name, expr in parts[0].items():
        split = Split(Replicated()) if not expr.spec.shape or name in known_buffers else partition.of(name)
        if split is None:
            shapes = ", ".join(str(p[name].spec) for p in parts[:4])
            unknown.append(f"{name}: {shapes}")
            continue
        classes[name] = _decided(split, name, parts, tied)
    if unknown:
        raise InputError(
            f"{len(unknown)} tensors have names that the partition file does not know: whether model parts "
            "hold pieces or copies of them can't be told",
            where=where,
            problems=unknown,
            remedy="say how each is divided in a file like rules/opt/metaseq.partition.yml: --partition FILE",
        )
    _check_sizes(classes, parts, target, where)
    return Divider(classes, copies)


def _check_names(parts: Sequence[Mapping[str, Expr]], where: object) -> None:
    names = {n for p in parts for n in p}
    lacking = [f"part {i}: lacks {n}" for i, p in enumerate(parts) for n in sorted(names - p.keys())]
    if lacking:
        raise InputError("model parts do not hold the same tensors", where=where, problems=lacking)


def _decided(split: Split, name: str, parts: Sequence[Mapping[str, Expr]], tied: bool) -> Class:
    """The class, where it depends on what a tensor is tied to."""
    if split.cls is not None:
        return split.cls
    like = parts[0].get(split.like)
    if like is None:
        return Replicated()
    mine = parts[0][name]
    divided = (tied or mine is like) if len(parts) == 1 else mine.spec.shape == like.spec.shape
    return rows() if divided else Replicated()


def _check_sizes(
    classes: Mapping[str, Class], parts: Sequence[Mapping[str, Expr]], target: int, where: object
) -> None:
    uneven: list[str] = []
    unlike: list[str] = []
    for name, cls in classes.items():
        pieces = [p[name] for p in parts]
        if len({p.spec for p in pieces}) > 1:
            unlike.append(f"{name}: {', '.join(str(p.spec) for p in pieces)}")
            continue
        try:
            whole = cls.merge(pieces, Merging("first"))
        except UsageError as e:
            unlike.append(f"{name}: {e.what}")
            continue
        try:
            cls.split(whole, target)
        except UsageError as e:
            uneven.append(f"{name}: {e.what}")
    if unlike:
        raise InputError("model parts hold different shapes", where=where, problems=unlike)
    if uneven:
        raise UsageError(
            f"{len(uneven)} tensors can't be divided into {target} equal parts",
            where=where,
            problems=uneven,
            remedy="choose a number that divides all of these",
        )
