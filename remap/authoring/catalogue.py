"""Every pack that can be asked for by name -> a table. ``remap rules list``."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from remap.errors import PackError
from remap.packs import available, load
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


def listing(words: Iterable[str] = ()) -> list[Listed]:
    """The packs that have all words in their name or title, by name; broken ones with the reason."""
    wanted = [w.lower() for w in words]
    found = [_listed(name) for name in available()]
    return [p for p in found if all(w in f"{p.name} {p.title}".lower() for w in wanted)]


def _listed(name: str) -> Listed:
    try:
        pack = load(name)
    except PackError as e:
        return Listed(name, "", "", False, str(e))
    return Listed(name, pack.version, pack.title, invertible(pack))


def invertible(pack: Pack) -> bool:
    """Has every rule of the pack, and of those that it uses, an inverse?"""
    return all(r.does != "rename" or no_inverse(r) is None for r in pack.all_rules)
