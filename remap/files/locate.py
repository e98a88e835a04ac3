"""What the user named -> a path: of this machine, or remote."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

if TYPE_CHECKING:
    from typing_extensions import TypeIs

    from remap.files.remote import RemotePath

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
"""At least two letters: one is a drive."""


def locate(named: str | Path) -> Path:
    """The path of what was named: ``s3://bucket/key`` and its like are remote, all else is of this machine.

    Raises UsageError for a URL that names no host or bucket.
    """
    if isinstance(named, Path) or not _URL.match(named):
        return Path(named)
    parts = urlsplit(named)
    if parts.scheme in ("file", "local"):
        return Path(unquote(parts.path))
    from remap.files.remote import parse

    return parse(named)


def is_remote(path: Path) -> TypeIs[RemotePath]:
    """True for what is read by fsspec."""
    return type(path).__name__ == "RemotePath"
