"""Every pack and layout that can be asked for by name -> tables. ``remap rules list``."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from remap.errors import PackError
from remap.packs import available, available_layouts, load, load_layout
from remap.packs.applying.invert import no_inverse
from remap.packs.language.pack import Pack


@dataclass(frozen=True, slots=True)
class Listed:
    """One pack in the list; ``broken`` says why it can't be loaded."""

    name: str
    version: str
    title: str
    inverse: bool
    broken: str | None = None


@dataclass(frozen=True, slots=True)
class ListedLayout:
    """One layout in the list; ``broken`` says why it can't be loaded."""

    name: str
    title: str
    broken: str | None = None


def listing(words: Iterable[str] = ()) -> list[Listed]:
    """The packs that have all words in their name or title, by name; broken ones with the reason."""
    return [p for p in map(_listed, available()) if _has(words, p.name, p.title)]


def layouts(words: Iterable[str] = ()) -> list[ListedLayout]:
    """The layouts that have all words in their name or title, by name; broken ones with the reason."""
    return [x for x in map(_listed_layout, available_layouts()) if _has(words, x.name, x.title)]


def _has(words: Iterable[str], *texts: str) -> bool:
    return all(word.lower() in " ".join(texts).lower() for word in words)


def _listed(name: str) -> Listed:
    try:
        pack = load(name)
    except PackError as e:
        return Listed(name, "", "", False, str(e))
    return Listed(name, pack.version, pack.title, invertible(pack))


def _listed_layout(name: str) -> ListedLayout:
    try:
        return ListedLayout(name, load_layout(name).title)
    except PackError as e:
        return ListedLayout(name, "", str(e))


def invertible(pack: Pack) -> bool:
    """Has every rule of the pack, and of those that it uses, an inverse?"""
    return all(r.does != "rename" or no_inverse(r) is None for r in pack.all_rules)
