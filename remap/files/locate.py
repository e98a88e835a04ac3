"""What the user named -> a path: of this machine, or remote."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from remap.errors import UsageError

if TYPE_CHECKING:
    from typing_extensions import TypeIs

    from remap.files.remote import RemotePath

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
"""At least two letters: one is a drive."""


def locate(named: str | Path) -> Path:
    """The path of what was named: ``s3://bucket/key`` and its like are remote, all else is of this machine.

    Raises UsageError for a URL that names no host or bucket, and for what is no name (a model, a state dict).
    """
    if isinstance(named, Path):
        return named
    if not isinstance(named, str):
        raise UsageError(
            f"a checkpoint is named by its path; this is a {type(named).__name__}",
            remedy="give a path; a model is what a checkpoint is audited against, or loaded into",
        )
    if not _URL.match(named):
        return Path(named)
    parts = urlsplit(named)
    if parts.scheme in ("file", "local"):
        return Path(unquote(parts.path))
    from remap.files.remote import parse

    return parse(named)


def is_remote(path: Path) -> TypeIs[RemotePath]:
    """True for what is read by fsspec."""
    return type(path).__name__ == "RemotePath"


def refresh(paths: Iterable[Path]) -> None:
    """Ask anew of ``paths`` what is known of them: other programs write there, too."""
    for folder in {p.parent: p for p in paths if is_remote(p)}.values():
        from remap.files import store

        store.forget(folder)


def look_ahead(paths: Iterable[Path], *, heads: bool = False) -> None:
    """Ask at once what is known of remote ``paths`` and, with ``heads``, for their first bytes: one after
    another each would take a round trip. Raises InputError."""
    remote = [p for p in paths if is_remote(p)]
    if remote:
        from remap.files import store

        store.look(remote, heads)


def fetch(path: RemotePath, offsets: Sequence[int], nbytes: int) -> dict[int, bytes]:
    """Offset -> ``nbytes`` from there on, fewer at the end of the file; all are asked for at once. Raises
    InputError."""
    from remap.files import store

    return store.fetch(path, offsets, nbytes)
