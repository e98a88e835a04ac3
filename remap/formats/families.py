"""Shards that only their names number: ``model-00001-of-00002.safetensors``.

A format says which names are its own, as a pattern with the groups ``stem``, ``number``, ``count`` and
``suffix``; a file whose name is none is a family of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from remap.errors import Damaged
from remap.files import look_ahead

Pattern = re.Pattern[str]

NAMED = 10_000
"""Shards that are asked for by name, at most."""


def family(path: Path, pattern: Pattern) -> list[Path]:
    """All shards beside ``path`` that it is one of, by number; ``[path]`` where it is none."""
    member = pattern.fullmatch(path.name)
    if member is None:
        return [path]
    found = [
        (int(other["number"]), p)
        for p in list(path.parent.iterdir()) or _named(path, member)
        if (other := pattern.fullmatch(p.name)) and _kin(other) == _kin(member)
    ]
    return [p for _, p in sorted(found)]


def _named(path: Path, member: re.Match[str]) -> list[Path]:
    """The shards by their names, where no server lists them."""
    number, text = len(member["number"]), path.name
    names = (
        f"{text[: member.start('number')]}{n:0{number}d}{text[member.end('number') :]}"
        for n in range(1, 1 + min(int(member["count"]), NAMED))
    )
    found = [path.with_name(name) for name in names]
    look_ahead(found)
    return [p for p in found if p.is_file()]


def firsts(paths: Iterable[Path], pattern: Pattern) -> list[Path]:
    """The first of ``paths`` from each family, in their order."""
    found: dict[object, Path] = {}
    for path in paths:
        member = pattern.fullmatch(path.name)
        found.setdefault(_kin(member) if member else path.name, path)
    return list(found.values())


def check_family(files: Sequence[Path], pattern: Pattern) -> None:
    """Raise Damaged naming every shard that is not there."""
    member = pattern.fullmatch(files[0].name)
    if member is None:
        return
    there = {int(m["number"]) for p in files if (m := pattern.fullmatch(p.name))}
    missing = [n for n in range(1, int(member["count"]) + 1) if n not in there]
    if missing:
        width = len(member["number"])
        raise Damaged(
            f"{len(missing)} of {int(member['count'])} shards are missing",
            where=files[0].parent,
            problems=[
                f"{member['stem']}-{n:0{width}d}-of-{member['count']}{member['suffix']}" for n in missing
            ],
            remedy="fetch the missing files into the same folder",
        )


def _kin(member: re.Match[str]) -> tuple[str, str, str]:
    return member["stem"], member["count"], member["suffix"]
