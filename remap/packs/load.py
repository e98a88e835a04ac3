"""A pack's name or path -> the pack, with the packs that it uses.

Names are looked up in the folders of ``REMAP_RULES``, then among the packs that are installed with remap
(the package ``remap_rules``). A path ends in ``.yaml``.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from remap.documents import read_document
from remap.errors import InputError, PackError
from remap.packs.language.pack import Pack
from remap.packs.language.reading import PACK_NAME, read_pack
from remap.packs.language.schema import suggestion
from remap.packs.layout import Layout, read_layout
from remap.packs.matching.keyset import KeySet

if TYPE_CHECKING:
    from importlib.abc import Traversable

VARIABLE = "REMAP_RULES"
"""Folders of packs, separated as in PATH."""

PACK, LAYOUT = ".yaml", ".layout.yaml"
"""How the files are called."""

LIMIT = 4 << 20
"""Bytes of a pack."""

_EVERYWHERE = {b"weight", b"bias"}

DEEPEST = 20
"""How many packs may use one another in a row."""
MOST = 200
"""How many packs may be applied in all, each as often as it is used."""


def load(ref: str) -> Pack:
    """The pack called ``family/name``, or in the file ``ref``. Raises PackError."""
    return _load(ref, (), Path.cwd())


def read(data: bytes, file: str) -> Pack:
    """The pack in ``data``; ``file`` is what its messages call it. Raises PackError."""
    return _read(data, file, (), Path.cwd())


def load_layout(ref: str) -> Layout:
    """The layout called ``family/name``, or in the file ``ref``. Raises PackError."""
    if _is_path(ref):
        return read_layout(_bytes(Path(ref).expanduser(), ref), ref, load_layout)
    file = _find(ref, LAYOUT)
    return _layout(file.read_bytes(), _shown(file, f"{ref}{LAYOUT}"))


@lru_cache(maxsize=100)
def _layout(data: bytes, file: str) -> Layout:
    """The same bytes are read once: to find the layout of some keys, all that there are are looked at."""
    return read_layout(data, file, load_layout)


def recognised(keys: Iterable[str]) -> list[Layout]:
    """The layouts that know all of the keys; of those that are like one another the simplest."""
    samples = [group.key for group in KeySet(keys).groups.values()]
    words = [{w.encode() for w in s.split(".") if not w.isdigit()} - _EVERYWHERE for s in samples]
    found: list[Layout] = []
    for name in available_layouts() if samples else ():
        file = _find(name, LAYOUT)
        data = file.read_bytes()
        hinted = all(not some or any(w in data for w in some) for some in words)
        if hinted or b"\nlike:" in data:  # else it need not be read
            layout = _layout(data, _shown(file, f"{name}{LAYOUT}"))
            if all(map(layout.knows, samples)):
                found.append(layout)
    plain = {layout.name for layout in found}
    return [layout for layout in found if layout.like not in plain]  # the one without what it adds


def available() -> dict[str, str]:
    """Name -> file of every pack that can be asked for by name."""
    return _named(PACK)


def available_layouts() -> dict[str, str]:
    """Name -> file of every layout that can be asked for by name."""
    return _named(LAYOUT)


def _named(suffix: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for folder in _folders():
        for name, file in _files(folder, "", suffix):
            found.setdefault(name, str(file))
    return dict(sorted(found.items()))


def _bytes(path: Path, ref: str) -> bytes:
    try:
        return read_document(path, LIMIT)
    except InputError as e:
        raise PackError(e.what, where=ref, remedy=e.remedy) from None


def _is_path(ref: str) -> bool:
    return ref.endswith((".yaml", ".yml"))


def _load(ref: str, chain: tuple[str, ...], base: Path) -> Pack:
    if _is_path(ref):
        path = Path(os.path.normpath(base / Path(ref).expanduser()))
        data = _bytes(path, ref)
        return _read(data, ref if base == Path.cwd() else str(path), chain, path.parent)
    file = _find(ref, PACK)
    pack = _read(file.read_bytes(), _shown(file, f"{ref}{PACK}"), chain, base)
    if pack.name != ref:
        raise PackError(
            f"it calls itself {pack.name!r} and lies under {ref!r}", where=pack.file, remedy="make them one"
        )
    return pack


def _shown(file: Traversable, name: str) -> str:
    return str(file) if isinstance(file, Path) and os.environ.get(VARIABLE) else name


def _find(ref: str, suffix: str) -> Traversable:
    if PACK_NAME.fullmatch(ref) and ".." not in ref.split("/"):
        for folder in _folders():
            file = folder.joinpath(*f"{ref}{suffix}".split("/"))
            if file.is_file():
                return file
    known = list(_named(suffix))
    raise PackError(
        f"no {'layout' if suffix == LAYOUT else 'pack'} is called {ref!r}{suggestion(ref, known)}",
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


def _suffix(name: str) -> str:
    return LAYOUT if name.endswith(LAYOUT) else PACK


def _files(folder: Traversable, prefix: str, suffix: str) -> Iterator[tuple[str, Traversable]]:
    if not folder.is_dir():
        return
    for entry in sorted(folder.iterdir(), key=lambda e: e.name):
        if entry.is_dir() and not entry.name.startswith(("_", ".")):
            yield from _files(entry, f"{prefix}{entry.name}/", suffix)
        elif prefix and entry.name.endswith(suffix) and suffix == _suffix(entry.name):
            yield f"{prefix}{entry.name.removesuffix(suffix)}", entry


def _read(data: bytes, file: str, chain: tuple[str, ...], base: Path) -> Pack:
    if file in chain:
        raise PackError(
            f"packs use each other in a circle: {' -> '.join((*chain[chain.index(file) :], file))}",
            where=file,
        )
    if len(chain) > DEEPEST:
        raise PackError(
            f"{len(chain)} packs use one another in a row", where=chain[0], problems=chain[:DEEPEST]
        )
    found: dict[str, Pack] = {}

    def find(ref: str) -> Pack:
        if ref not in found:
            found[ref] = _load(ref, (*chain, file), base)
        return found[ref]

    pack = read_pack(data, file, find, lambda used: _digest(data, used))
    applied = sum(1 + len(used.all_used) for used in pack.used)
    if applied > MOST:
        raise PackError(f"it uses {applied} packs in all; {MOST} are allowed", where=file)
    return pack


def _digest(data: bytes, used: Iterable[Pack]) -> str:
    import xxhash

    state = xxhash.xxh3_128(data)
    for pack in used:
        state.update(pack.digest.encode())
    return state.hexdigest()
