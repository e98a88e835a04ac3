"""What a file's first bytes say, before any format is asked: most need not even be imported."""

from __future__ import annotations

from pathlib import Path

from remap.files import look_ahead
from remap.formats.deepspeed.names import LATEST

HEAD = 64
SIGNATURES = ((b"PK\x03\x04", "zip"), (b"\x80", "pickle"), (b"\x1f\x8b", "gzip"))


def kinds(path: Path) -> frozenset[str] | None:
    """The kinds of a file, or of all files in a folder, with ``folder`` where it holds folders; None where
    one of them is of no known kind, so that every format has to be asked."""
    if not path.is_dir():
        found = {kind(path)}
    else:
        there = list(path.iterdir())
        look_ahead(there, heads=True)
        found = {"folder" if p.is_dir() else kind(p) for p in there}
    known = {k for k in found if k is not None}
    return None if len(known) < len(found) else frozenset(known)


def kind(path: Path) -> str | None:
    """``zip``, ``pickle``, ``gzip``, ``safetensors``, ``json``, ``text``, or ``latest`` by name; None for
    anything else, and for what is empty."""
    if path.name == LATEST:
        return LATEST
    if not path.is_file():
        return "text"  # a socket, a pipe, a link to nothing: no checkpoint, and not to be read
    with path.open("rb") as f:
        head = f.read(HEAD)
    if head[8:9] == b"{" and not head[5:8].strip(b"\0"):
        return "safetensors"
    for signature, name in SIGNATURES:
        if head.startswith(signature):
            return name
    if head.lstrip()[:1] == b"{":
        return "json"
    return "text" if head and _is_text(head) else None


def _is_text(head: bytes) -> bool:
    try:
        text = head.decode()
    except UnicodeDecodeError as e:
        text = head[: e.start].decode() if e.start > HEAD - 4 else "\0"  # cut inside a letter
    return all(c.isprintable() or c.isspace() for c in text)
