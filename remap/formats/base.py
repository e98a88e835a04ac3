"""What a format module gives, and the values in which it describes a file to be written.

A reader turns paths into a Catalog by reading headers only. A writer turns a table of expressions
into OutFiles: for every file its name, and its bytes as a sequence of parts of known size. It
moves no data; ``remap.stream`` does, and takes digests on the way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Protocol, Union, runtime_checkable

from remap.errors import UsageError
from remap.expr import Expr
from remap.partitions.base import Copies
from remap.types import Catalog

BLOCK = 4096
"""Bytes of a file system's block. Tensors that lie in theirs as in the source's can share them."""

ALIGNED = 1 << 20
"""Bytes. What is smaller is not worth padding before it."""


@dataclass(frozen=True, slots=True)
class Literal:
    """Bytes that are known before any data moves: headers, pickles, padding, indexes."""

    data: bytes

    @property
    def nbytes(self) -> int:
        return len(self.data)


@dataclass(frozen=True, slots=True)
class TensorBytes:
    """The row-major bytes of one output tensor."""

    key: str
    expr: Expr

    @property
    def nbytes(self) -> int:
        return self.expr.spec.nbytes


@dataclass(frozen=True, slots=True)
class CopiedBytes:
    """A stretch of a source file, carried along unopened.

    crc32  what the source says of these bytes, checked while they pass; None where it says nothing
    """

    file: Path
    offset: int
    nbytes: int
    crc32: int | None = None


Part = Union[Literal, TensorBytes, CopiedBytes]
Seal = Callable[[Sequence[int]], list[tuple[int, bytes]]]


@dataclass(frozen=True)
class OutFile:
    """One file to be written.

    name   relative to the destination's folder, with ``/``
    parts  its bytes, in order
    seal   where the file holds checksums of its own parts (zip): called with the CRC-32 of every
           part once all are written; returns (offset, bytes) to overwrite
    carries  True where this is a source file rewritten, so that everything else in it comes along
    left   names of what does not come along all the same
    kept   names of what comes along from a source of another format
    """

    name: str
    parts: tuple[Part, ...]
    seal: Seal | None = None
    carries: bool = False
    left: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()

    @cached_property
    def nbytes(self) -> int:
        return sum(p.nbytes for p in self.parts)


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """What the user may say about an output.

    shard_size  largest file in bytes, None for one file
    tag         name of the step folder (DeepSpeed)
    name        file name, where the destination is one file; None where it is a folder
    ranks       ranks that every tensor is cut over (DCP), None for whole tensors
    under       where in it the state dict is to lie, ``app.model`` (DCP, torch); None for where it lay
    stages      pipeline stages that are to load it (DeepSpeed), None for one, or as many as there were
    optimizer  False to leave the optimizer's state behind
    """

    shard_size: int | None = None
    tag: str | None = None
    name: str | None = None
    ranks: int | None = None
    under: str | None = None
    optimizer: bool = True
    stages: int | None = None

    def refuse_file(self, why: str) -> None:
        """Raise UsageError where the destination is one file; ``why`` it must be a folder."""
        if self.name is not None:
            raise UsageError(f"{why}, {self.name} is a file's name", remedy="name a folder")


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """What the user may say of an input that lies in parts (``Merges``).

    copies     what copies that differ become
    partition  a YAML file that says how tensors with further names are divided (metaseq)
    """

    copies: Copies = "error"
    partition: Path | None = None


AS_IT_LIES = ReadOptions()
"""Nothing is said: copies agree, and names are known."""


class Format(Protocol):
    """One way a checkpoint lies on disk. A module of ``remap.formats`` provides it as FORMAT."""

    name: str
    title: str

    def find(self, path: Path) -> Sequence[Path]:
        """The checkpoints of this format at ``path`` (a file of one, or a folder), recognised by
        content; [] where there is none. Several are for the caller to refuse."""
        ...

    def open(self, path: Path, *, at: str | None = None) -> Catalog:
        """Read the headers of what ``find`` returned. Raises InputError."""
        ...

    def lay_out(self, tensors: Mapping[str, Expr], source: Catalog, options: WriteOptions) -> list[OutFile]:
        """Describe the files that hold ``tensors``. Raises UsageError where the format can't."""
        ...


@runtime_checkable
class Ranked(Protocol):
    """A format that tensor-parallel ranks and pipeline stages load."""

    def lay_out_ranks(
        self, tables: Sequence[Mapping[str, Expr]], source: Catalog, options: WriteOptions
    ) -> list[OutFile]:
        """Describe the files that hold every rank's tensors; those of several are called by
        ``types.rank_key`` in their parts. Raises UsageError."""
        ...


@runtime_checkable
class Merges(Protocol):
    """A format that puts parts together while it opens them."""

    def open_merged(self, path: Path, options: ReadOptions, *, at: str | None = None) -> Catalog:
        """``open``, as ``options`` say."""
        ...


@runtime_checkable
class Claims(Protocol):
    """A format whose checkpoints are made of files that other formats would take one by one."""

    def claims(self, root: Path) -> Iterable[Path]:
        """The files of the checkpoint at ``root``, which ``find`` returned: no other format gets them."""
        ...
