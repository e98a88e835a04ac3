"""From the old headers to the new ones, or back, so that no loader takes what is between for a checkpoint.

    1  every file is closed: its first eight bytes tell a length that no header has
    2  the headers are rewritten
    3  indexes and receipts are replaced
    4  every file is opened: the length is right again

The disk has each step before the next begins. Wherever that stops, it can be gone through again either way.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from enum import Enum
from pathlib import Path

from remap.errors import Damaged
from remap.inplace.undo import Change, Header
from remap.stream.disk import write_all
from remap.stream.placing.names import put_file, sync_folder

CLOSED = 1 << 63
"""Added to a header's length: safetensors allows 100 MB."""

LENGTH = 8


class State(Enum):
    """What the header of a file is."""

    OLD = "old"
    NEW = "new"
    BETWEEN = "between"


def states(change: Change, folder: Path) -> dict[str, State]:
    """File that is changed -> state. Raises Damaged where others changed one."""
    found = {n: _state(folder / n, h) for n, h in change.headers.items() if h.old != h.new}
    foreign = [name for name, state in found.items() if state is None]
    if foreign:
        raise Damaged(
            "files were changed since their keys were renamed in place",
            where=folder,
            problems=foreign,
            remedy="remove the undo file if they are as they should be",
        )
    return {name: state for name, state in found.items() if state is not None}


def _state(path: Path, header: Header) -> State | None:
    if not path.is_file():
        return None
    with path.open("rb") as f:
        length, text = int.from_bytes(f.read(LENGTH), "little"), f.read(len(header.old))
    if length == len(header.old) + CLOSED:
        return State.BETWEEN
    if length != len(header.old):
        return None
    return State.OLD if text == header.old else State.NEW if text == header.new else None


def go(change: Change, folder: Path, to: State) -> None:
    """Bring every file to the state ``to``: NEW, or OLD. Raises Damaged, OSError."""
    todo = [name for name, state in states(change, folder).items() if state is not to]

    def header(name: str) -> bytes:
        found = change.headers[name]
        return found.new if to is State.NEW else found.old

    def length(name: str, more: int = 0) -> bytes:
        return (len(header(name)) + more).to_bytes(LENGTH, "little")

    _each(todo, folder, lambda name: (0, length(name, CLOSED)))
    _each(todo, folder, lambda name: (LENGTH, header(name)))
    for name, text in change.texts.items():
        _replace(folder / name, text.new if to is State.NEW else text.old)
    _each(todo, folder, lambda name: (0, length(name)))


def _each(names: Iterable[str], folder: Path, what: Callable[[str], tuple[int, bytes]]) -> None:
    for name in names:
        offset, data = what(name)
        fd = os.open(folder / name, os.O_WRONLY | os.O_NOFOLLOW)
        try:
            write_all(fd, data, offset)
            os.fsync(fd)
        finally:
            os.close(fd)


def _replace(path: Path, data: bytes) -> None:
    part = path.with_name(f".{path.name}.part")
    put_file(part, data, sync=True)
    os.replace(part, path)
    sync_folder(path.parent)
