"""The ``dcp`` format: a folder of torch.distributed.checkpoint."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from remap.expr import Expr
from remap.formats.base import OutFile, WriteOptions
from remap.formats.dcp import reader
from remap.formats.dcp.extras import peek
from remap.formats.dcp.nest import is_nested, nest
from remap.formats.dcp.optimizer import is_optimizer, read_optimizer
from remap.formats.dcp.writing import writer
from remap.types import Catalog


class Dcp:
    """The ``dcp`` format: ``.metadata`` and ``.distcp`` files in a folder."""

    name = "dcp"
    title = "torch.distributed.checkpoint folder (.metadata and .distcp)"

    def find(self, path: Path) -> Sequence[Path]:
        """The folder that ``path`` is, or is a file of."""
        return reader.find(path)

    def claims(self, root: Path) -> Iterable[Path]:
        """The ``.distcp`` files, which begin as torch files do."""
        return reader.distcp_files(root)

    def open(self, path: Path, *, at: str | None = None) -> Catalog:
        """Read ``.metadata`` and the headers of the items. Raises InputError, UsageError."""
        catalog = reader.open_folder(path, at, self.name)
        folder = catalog.native
        assert isinstance(folder, reader.Folder)
        has_optimizer = at is None and any(map(is_optimizer, folder.metadata.paths.values()))
        return replace(
            catalog,
            peek=partial(peek, folder),
            nested=partial(nest, folder) if at is not None and is_nested(folder) else None,
            optimizer=partial(read_optimizer, folder) if has_optimizer else None,
        )

    def lay_out(self, tensors: Mapping[str, Expr], source: Catalog, options: WriteOptions) -> list[OutFile]:
        """One ``.distcp`` file, or several of at most ``options.shard_size`` bytes. Raises UsageError."""
        return writer.lay_out(tensors, source, options)


FORMAT = Dcp()
