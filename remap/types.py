"""The frozen values that flow between the parts: specs, locations, entries, the catalog."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Union

from remap.dtypes import DType, dtype
from remap.errors import UsageError

if TYPE_CHECKING:
    from remap.expr.nodes import Expr
    from remap.partitions.base import Partition

_SPEC = re.compile(r"([a-z0-9_.]+)\[([0-9, ]*)\]")


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """What a tensor is, without its data: element type and shape."""

    dtype: DType
    shape: tuple[int, ...]
    nbytes: int = field(init=False, compare=False, repr=False)
    """Bytes of the elements in row-major order."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "nbytes", prod(self.shape) * self.dtype.itemsize)

    @property
    def numel(self) -> int:
        """Number of elements; 1 for a 0-dim tensor."""
        return self.nbytes // self.dtype.itemsize

    @classmethod
    def parse(cls, text: str) -> TensorSpec:
        """Read the hand-written form, ``f16[8,8]``. Raises UsageError."""
        found = _SPEC.fullmatch(text.strip())
        if found is None:
            raise UsageError(f"{text!r} is not a tensor spec", remedy="write it as f16[8,8]")
        sizes = [s for s in found[2].replace(" ", "").split(",") if s]
        return cls(dtype(found[1]), tuple(map(int, sizes)))

    def __str__(self) -> str:
        return f"{self.dtype.short}[{','.join(map(str, self.shape))}]"


@dataclass(frozen=True, slots=True)
class Location:
    """Where a tensor's bytes lie.

    file     the file that holds them
    offset   byte offset of the first element in the file
    strides  in elements, one a dimension; None for row-major without gaps
    crc32    what the file itself says of these bytes (a zip record that is just this tensor);
             checked while the bytes pass
    """

    file: Path
    offset: int
    strides: tuple[int, ...] | None = None
    crc32: int | None = None


@dataclass(frozen=True, slots=True)
class Span:
    """``nbytes`` of a file from ``offset`` on."""

    file: Path
    offset: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class Scattered:
    """A tensor that lies in pieces: its row-major bytes are those of the spans, one after another.

    There is at least one span, and together they have the bytes of the tensor's spec. They may be
    made while they are gone through: a matrix that was cut by columns has one for every row and cut.
    """

    spans: Sequence[Span]

    @property
    def file(self) -> Path:
        """The file that holds the first element."""
        return self.spans[0].file

    @property
    def offset(self) -> int:
        """Byte offset of the first element in ``file``."""
        return self.spans[0].offset

    @property
    def crc32(self) -> None:
        """No file has a checksum of a tensor that it holds a piece of."""
        return None


@dataclass(frozen=True, slots=True, eq=False)
class Derived:
    """A tensor that no file holds as it is: its value is that of an expression over stored ones.

    Two entries are tied where they share one Derived, the very object.
    """

    expr: Expr

    @property
    def file(self) -> Path | None:
        """The file that holds the first tensor of the expression, None where only its key is known."""
        where = self._first().location
        return where.file if where else None

    @property
    def offset(self) -> int:
        """Where that tensor begins in ``file``."""
        where = self._first().location
        return where.offset if where else 0

    @property
    def crc32(self) -> None:
        """No file has a checksum of a value that it does not hold."""
        return None

    def _first(self) -> Entry:
        node = self.expr
        while node.children:
            node = node.children[0]
        return node.entry  # type: ignore[union-attr]  # what has no children is a Take


@dataclass(frozen=True, slots=True)
class Entry:
    """One tensor of a catalog. ``location`` is None where only the key list is known."""

    key: str
    spec: TensorSpec
    location: Place | None = None


Place = Union[Location, Scattered, Derived]
"""How the bytes of a tensor are found."""


@dataclass(frozen=True)
class OptimizerState:
    """An optimizer's state, weight by weight, as one format reads it and another writes it.

    name     what the source calls it
    tensors  key of a weight -> slot -> tensor: moments, which have the weight's shape, and steps
    values   key of a weight -> slot -> plain value: steps that are numbers
    groups   settings of every parameter group; ``params`` are keys of weights
    rest     what else the optimizer keeps, plain values by name: a loss scale
    """

    name: str
    tensors: Mapping[str, Mapping[str, Entry]]
    values: Mapping[str, Mapping[str, object]]
    groups: Sequence[Mapping[str, object]]
    rest: Mapping[str, object] = field(default_factory=dict)


Nesting = Callable[[Mapping[str, "Expr"]], tuple[dict[str, object], list[str]]]


@dataclass(frozen=True)
class Catalog:
    """The table that a reader returns: every tensor, none of its data.

    format    name of the format that read it
    root      the file or folder that stands for the checkpoint: an index, a step folder, a file
    asked     what the user pointed at: ``root``, a file of the checkpoint, or a folder that holds it
    at        where in it the tensors were asked for (``--at``), None where they were found
    files     every file that belongs to the checkpoint, sorted
    entries   key -> entry, in the order of the file
    metadata  text that the format keeps beside the tensors
    config    the model's ``config.json``, or what its files say in the words of one; {} where there is none
    opaque    names of classes in pickles that are carried along unopened
    extras    names of what the files hold beside the tensors: optimizer, arguments, step
    companions  files beside it that describe its model (``config.json``, the tokenizer)
    warnings  what a user should know before trusting it
    peek      the plain value of an extra, by its name; None where the format does not read them
    native    the reader's own view, for the writer of the same format; nobody else looks at it
    ranks     the tables of the tensor-parallel ranks, where there are several; ``entries`` then has
              all of them (``rank_key``) until they are merged
    partitions  key -> the class by which ranks were merged
    stored    where entries are put together: every tensor as the files hold it, by file and place
    optimizer  reads the optimizer's state; None where there is none, or the format does not know whose it is
    nested    where dicts of dicts were asked for (``--at``): puts tensors, by key, and the plain values
              beside them back into those, and names what it can't. None where keys are of one dict
    """

    format: str
    root: Path
    files: tuple[Path, ...]
    entries: Mapping[str, Entry]
    asked: Path | None = None
    at: str | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)
    config: Mapping[str, object] = field(default_factory=dict)
    opaque: tuple[str, ...] = ()
    extras: tuple[str, ...] = ()
    companions: tuple[Path, ...] = ()
    warnings: tuple[str, ...] = ()
    peek: Callable[[str], object] | None = field(default=None, repr=False, compare=False)
    native: object = field(default=None, repr=False, compare=False)
    ranks: tuple[Mapping[str, Entry], ...] = field(default=(), repr=False)
    partitions: Mapping[str, Partition] = field(default_factory=dict, repr=False)
    stored: Mapping[str, Entry] = field(default_factory=dict, repr=False, compare=False)
    optimizer: Callable[[], OptimizerState | None] | None = field(default=None, repr=False, compare=False)
    nested: Nesting | None = field(default=None, repr=False, compare=False)

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors, ties counted once."""
        return sum(e.spec.nbytes for k, e in self.entries.items() if k not in self.aliases)

    @cached_property
    def aliases(self) -> Mapping[str, str]:
        """Ties: key -> the first key with the very same bytes, shape and strides."""
        return find_ties(self.entries.values())


def rank_key(key: str, rank: int) -> str:
    """What one rank's part of a tensor is called where those of all ranks are listed together."""
    return f"{key}@{rank}"


def find_ties(entries: Iterable[Entry]) -> dict[str, str]:
    """Key -> first key for entries that share one location and spec. Empty tensors are never tied."""
    first: dict[tuple[Place, TensorSpec], str] = {}
    ties: dict[str, str] = {}
    for e in entries:
        if e.location is None or e.spec.numel == 0:
            continue
        kept = first.setdefault((e.location, e.spec), e.key)
        if kept != e.key:
            ties[e.key] = kept
    return ties
