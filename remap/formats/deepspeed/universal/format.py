"""The ``deepspeed-universal`` format: fp32 weights and moments by name, for any number of ranks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from remap.errors import InputError
from remap.expr import Expr
from remap.formats.base import OutFile, WriteOptions
from remap.formats.deepspeed.universal import folder, read, write
from remap.formats.deepspeed.zero.run import ZERO
from remap.partitions.base import Partition
from remap.types import Catalog


class DeepSpeedUniversal:
    """See the module's docstring, and ``folder`` for the files."""

    name = "deepspeed-universal"
    title = "DeepSpeed universal checkpoint: a folder for every weight"

    def find(self, path: Path) -> Sequence[Path]:
        """Step folders with ``zero/<weight>/fp32.pt`` at ``path``, or of which it is a file."""
        return folder.find(path)

    def claims(self, root: Path) -> Iterable[Path]:
        """All folders in the step folder ``root``."""
        return [root, root / folder.ZERO_FOLDER, *folder.weight_folders(root)]

    def open(self, path: Path, *, at: str | None = None) -> Catalog:
        """Read the headers of every weight. Its fp32 weights are all that it has, so ``zero`` is the one
        place. Raises InputError."""
        if at not in (None, ZERO):
            raise InputError(f"there is no {at!r} in it", where=path, remedy="leave out --at")
        return read.open_folder(path, self.name)

    def lay_out(self, tensors: Mapping[str, Expr], source: Catalog, options: WriteOptions) -> list[OutFile]:
        """A folder for every weight; see ``write``. Raises UsageError."""
        return self.lay_out_for(tensors, {}, (tensors,), source, options)

    def lay_out_for(
        self,
        tensors: Mapping[str, Expr],
        classes: Mapping[str, Partition],
        ranks: Sequence[Mapping[str, Expr]],
        source: Catalog,
        options: WriteOptions,
    ) -> list[OutFile]:
        """The same, each with what DeepSpeed is to know of its class."""
        return write.lay_out(tensors, classes, ranks, source, options)


FORMAT = DeepSpeedUniversal()
