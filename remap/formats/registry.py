"""Which format a path is: every format is asked that could be meant, content decides.

Adding a format is one module with a FORMAT, and its line here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

from remap.errors import InputError, NotACheckpoint, UsageError
from remap.formats.base import AS_IT_LIES, Claims, Format, Merges, ReadOptions
from remap.formats.foreign import describe
from remap.formats.kinds import kinds
from remap.types import Catalog


class Known(NamedTuple):
    """A format's module, and the kinds of files (``kinds.kind``) without which it need not be asked."""

    module: str
    kinds: frozenset[str]


def _known(module: str, found_in: str) -> Known:
    return Known(f"remap.formats.{module}", frozenset(found_in.split()))


FORMATS = {
    "deepspeed-universal": _known("deepspeed.universal.format", "zip pickle text folder"),
    "deepspeed-pipeline": _known("deepspeed.pipeline", "zip pickle latest folder"),
    "deepspeed": _known("deepspeed.module", "zip pickle latest folder"),
    "megatron": _known("megatron.format", "zip pickle text folder"),
    "dcp": _known("dcp.folder", "zip pickle"),
    "dcp-safetensors": _known("dcp.safetensors_shards", "safetensors"),
    "safetensors": _known("safetensors", "safetensors json text"),
    "metaseq": _known("metaseq", "zip pickle"),
    "torch-fsdp": _known("torch_fsdp.folder", "zip pickle"),
    "torch": _known("torch.folder", "zip pickle json"),
    "keys": _known("keylist", "json gzip"),
}
"""Name -> what is known of it. Where two claim one path, the first owns it: a layer file is a torch file."""


def get(name: str) -> Format:
    """The format of that name. Raises UsageError."""
    if name not in FORMATS:
        raise UsageError(f"no format is called {name!r}", remedy=f"use one of {', '.join(FORMATS)}")
    found: Format = import_module(FORMATS[name].module).FORMAT
    return found


def open_catalog(path: Path, *, at: str | None = None, options: ReadOptions = AS_IT_LIES) -> Catalog:
    """The catalog of the one checkpoint at ``path``: any of its files, or its folder.

    options  how parts are put together, where the format does that

    Raises InputError: nothing there, no checkpoint, or several of them.
    """
    path = path.expanduser()
    if not path.exists():
        raise InputError("no such file or folder", where=path, remedy=_beside(path))
    try:
        found = find(path)
        if not found:
            raise NotACheckpoint(describe(path), where=path)
        check_one([f"{f.name}: {root}" for f, root in found], path)
        ((fmt, root),) = found
        catalog = fmt.open_merged(root, options, at=at) if isinstance(fmt, Merges) else fmt.open(root, at=at)
        return replace(catalog, asked=path, at=at)
    except PermissionError as e:
        raise InputError("no permission to read it", where=e.filename or path) from None
    except OSError as e:
        raise InputError(f"can't be read: {e.strerror or e}", where=e.filename or path) from None


def _beside(path: Path) -> str | None:
    """What lies there under a name that begins alike: parts of what was asked for."""
    if not path.parent.is_dir():
        return None
    found = sorted(p.name for p in path.parent.iterdir() if path.stem and p.name.startswith(path.stem))
    return f"is it {' or '.join(found[:2])}? any file of a checkpoint stands for all" if found else None


def check_one(found: Sequence[str], path: Path) -> None:
    """Raise InputError, naming all, where several checkpoints are found at ``path``."""
    if len(found) > 1:
        raise InputError(
            f"{len(found)} checkpoints are here, and which one is meant is not to be guessed",
            where=path,
            problems=found,
            remedy="point at a file of the one that you mean",
        )


def find(path: Path) -> list[tuple[Format, Path]]:
    """Every checkpoint at ``path``, each with its format."""
    found: dict[Path, Format] = {}
    claimed: set[Path] = set()
    for name in _asked(kinds(path)):
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


def _asked(there: frozenset[str] | None) -> Iterable[str]:
    """The formats that may know files of these kinds; all of them where one is of no known kind."""
    return (name for name, known in FORMATS.items() if there is None or known.kinds & there)
