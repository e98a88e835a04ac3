"""Which format a path is: every format is asked, content decides.

Adding a format is one module with a FORMAT, and its line here.
"""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from pathlib import Path

from remap.errors import InputError, NotACheckpoint, UsageError
from remap.formats.base import Claims, Format
from remap.formats.foreign import describe
from remap.types import Catalog

MODULES = {
    "deepspeed-pipeline": "remap.formats.deepspeed_pipeline",
    "deepspeed": "remap.formats.deepspeed",
    "dcp": "remap.formats.dcp.folder",
    "dcp-safetensors": "remap.formats.dcp.safetensors_shards",
    "safetensors": "remap.formats.safetensors",
    "metaseq": "remap.formats.metaseq",
    "torch-fsdp": "remap.formats.torch_fsdp.folder",
    "torch": "remap.formats.torch_files",
    "keys": "remap.formats.keylist",
}
"""Name -> module. Where two claim one path, the first owns it: a layer file is a torch file, too."""


def get(name: str) -> Format:
    """The format of that name. Raises UsageError."""
    if name not in MODULES:
        raise UsageError(f"no format is called {name!r}", remedy=f"use one of {', '.join(MODULES)}")
    found: Format = import_module(MODULES[name]).FORMAT
    return found


def open_catalog(path: Path, *, at: str | None = None) -> Catalog:
    """The catalog of the one checkpoint at ``path``: any of its files, or its folder.

    Raises InputError: nothing there, no checkpoint, or several of them.
    """
    path = path.expanduser()
    if not path.exists():
        raise InputError("no such file or folder", where=path)
    try:
        found = find(path)
        if not found:
            raise NotACheckpoint(describe(path), where=path)
        if len(found) > 1:
            raise InputError(
                f"{len(found)} checkpoints are here, and which one is meant is not to be guessed",
                where=path,
                problems=[f"{f.name}: {root}" for f, root in found],
                remedy="point at a file of the one that you mean",
            )
        return replace(found[0][0].open(found[0][1], at=at), asked=path, at=at)
    except PermissionError as e:
        raise InputError("no permission to read it", where=e.filename or path) from None
    except OSError as e:
        raise InputError(f"can't be read: {e.strerror or e}", where=e.filename or path) from None


def find(path: Path) -> list[tuple[Format, Path]]:
    """Every checkpoint at ``path``, each with its format."""
    found: dict[Path, Format] = {}
    claimed: set[Path] = set()
    for name in MODULES:
        fmt = get(name)
        for root in fmt.find(path):
            if root in found or root in claimed or root.parent in claimed:
                continue
            found[root] = fmt
            if isinstance(fmt, Claims):
                claimed.update(fmt.claims(root))
            if name.startswith("deepspeed"):
                claimed.add(root)
    return [(fmt, root) for root, fmt in found.items()]
