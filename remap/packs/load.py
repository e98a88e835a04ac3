"""A pack's name or path -> the pack, with the packs that it uses.

Names are looked up in the folders of ``REMAP_RULES``, then among the packs that are installed with remap
(the package ``remap_rules``). A path ends in ``.yaml``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from remap.errors import PackError
from remap.packs.pack import Pack
from remap.packs.reading import read_pack
from remap.packs.schema import suggestion

if TYPE_CHECKING:
    from importlib.abc import Traversable

VARIABLE = "REMAP_RULES"
"""Folders of packs, separated as in PATH."""

_NAME = re.compile(r"[A-Za-z0-9_.-]+(?:/[A-Za-z0-9_.-]+)+")


def load(ref: str) -> Pack:
    """The pack called ``family/name``, or in the file ``ref``. Raises PackError."""
    return _load(ref, (), Path.cwd())


def read(data: bytes, file: str) -> Pack:
    """The pack in ``data``; ``file`` is what its messages call it. Raises PackError."""
    return _read(data, file, (), Path.cwd())


def available() -> dict[str, str]:
    """Name -> file of every pack that can be asked for by name."""
    found: dict[str, str] = {}
    for folder in _folders():
        for name, file in _packs(folder, ""):
            found.setdefault(name, str(file))
    return dict(sorted(found.items()))


def _is_path(ref: str) -> bool:
    return ref.endswith((".yaml", ".yml"))


def _load(ref: str, chain: tuple[str, ...], base: Path) -> Pack:
    if _is_path(ref):
        path = base / Path(ref).expanduser()
        try:
            data = path.read_bytes()
        except OSError as e:
            raise PackError(f"the pack can't be read: {e.strerror}", where=ref) from None
        return _read(data, ref if base == Path.cwd() else str(path), chain, path.parent)
    file = _find(ref)
    pack = _read(file.read_bytes(), _shown(file, ref), chain, base)
    if pack.name != ref:
        raise PackError(
            f"it calls itself {pack.name!r} and lies under {ref!r}", where=pack.file, remedy="make them one"
        )
    return pack


def _shown(file: Traversable, ref: str) -> str:
    return str(file) if isinstance(file, Path) and os.environ.get(VARIABLE) else f"{ref}.yaml"


def _find(ref: str) -> Traversable:
    if _NAME.fullmatch(ref) and ".." not in ref.split("/"):
        for folder in _folders():
            file = folder.joinpath(*f"{ref}.yaml".split("/"))
            if file.is_file():
                return file
    known = list(available())
    raise PackError(
        f"no pack is called {ref!r}{suggestion(ref, known)}",
        remedy="`remap rules list` shows what there is; a path must end in .yaml",
    )


def _folders() -> Iterator[Traversable]:
    for folder in os.environ.get(VARIABLE, "").split(os.pathsep):
        if folder:
            yield Path(folder)
    try:
        yield files("remap_rules")
    except ModuleNotFoundError:
        return


def _packs(folder: Traversable, prefix: str) -> Iterator[tuple[str, Traversable]]:
    if not folder.is_dir():
        return
    for entry in sorted(folder.iterdir(), key=lambda e: e.name):
        if entry.is_dir() and not entry.name.startswith(("_", ".")):
            yield from _packs(entry, f"{prefix}{entry.name}/")
        elif prefix and entry.name.endswith(".yaml"):
            yield f"{prefix}{entry.name.removesuffix('.yaml')}", entry


def _read(data: bytes, file: str, chain: tuple[str, ...], base: Path) -> Pack:
    if file in chain:
        raise PackError(
            f"packs use each other in a circle: {' -> '.join((*chain[chain.index(file) :], file))}",
            where=file,
        )

    def find(ref: str) -> Pack:
        return _load(ref, (*chain, file), base)

    return read_pack(data, file, find, lambda used: _digest(data, used))


def _digest(data: bytes, used: Iterable[Pack]) -> str:
    import xxhash

    state = xxhash.xxh3_128(data)
    for pack in used:
        state.update(pack.digest.encode())
    return state.hexdigest()
