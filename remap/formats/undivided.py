"""What a format gives whose tensors are whole, and divided by whoever loads them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

from remap.expr import Expr
from remap.formats.base import OutFile, WriteOptions
from remap.partitions.base import Partition
from remap.types import Catalog


@runtime_checkable
class Undivided(Protocol):
    """A format of whole tensors that says how tensor-parallel ranks are to take their parts."""

    def lay_out_for(
        self,
        tensors: Mapping[str, Expr],
        classes: Mapping[str, Partition],
        ranks: Sequence[Mapping[str, Expr]],
        source: Catalog,
        options: WriteOptions,
    ) -> list[OutFile]:
        """Describe the files that hold ``tensors``.

        classes  key -> its class, where it is known
        ranks    what each of the ranks will make of them

        Raises UsageError.
        """
        ...
