"""What a user does in place: rename, finish what was begun, take it back."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import remap.inplace.undo as undo_file
from remap.errors import DestinationError, UsageError
from remap.inplace.change import change_of
from remap.inplace.steps import State, go, states
from remap.plan import Plan
from remap.stream.placing.destination import explained


def rename(plan: Plan) -> Path:
    """Rename the keys of a safetensors checkpoint inside its files; the undo file's path.

    Raises UsageError where ``plan`` is more than a rename or does not fit, DestinationError where an
    undo file lies there already.
    """
    root = plan.catalog.root
    earlier = undo_file.find(root)
    if earlier is not None:
        _refuse(earlier)
    path = root.with_name(f"{root.name}{undo_file.SUFFIX}")
    change = change_of(plan)
    with explained(root):
        undo_file.write(change, path)
        with undo_file.locked(path):
            go(change, path.parent, State.NEW)
    return path


def finish(source: Path, packs: Sequence[str] = ()) -> Path | None:
    """Finish a rename that was killed; the undo file's path, None where none was begun.

    packs  digests of those that should have begun it. Raises DestinationError where others did
    """
    path = undo_file.find(source)
    if path is None:
        return None
    change = undo_file.read(path)
    if packs and sorted(packs) != sorted(change.packs):
        raise DestinationError(
            "--resume finishes the rename that was begun here, and that was by other packs",
            where=path,
            remedy="take it back with --undo first",
        )
    with explained(path), undo_file.locked(path):
        go(change, path.parent, State.NEW)
    return path


def undo(source: Path) -> Path:
    """Take a rename back, finished or not, and remove the undo file. Raises UsageError without one."""
    path = undo_file.find(source)
    if path is None:
        raise UsageError("no undo file lies beside it", where=source)
    change = undo_file.read(path)
    with explained(path), undo_file.locked(path):
        go(change, path.parent, State.OLD)
        undo_file.remove(path)
    return path


def _refuse(path: Path) -> None:
    """Raise DestinationError: an earlier rename is still to be kept, finished or taken back."""
    if set(states(undo_file.read(path), path.parent).values()) == {State.NEW}:
        raise DestinationError(
            "a rename in place was made here, and can be taken back",
            where=path,
            remedy="take it back with --undo, or remove this file to keep it for good",
        )
    raise DestinationError(
        "a rename in place was begun here, and not finished",
        where=path,
        remedy="finish it with --resume, or take it back with --undo",
    )
