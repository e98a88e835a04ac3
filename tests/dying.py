"""Work that takes its worker along, once: what is left of the worker's process is half a unit."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from remap.stream import elsewhere
from remap.stream.elsewhere import Unit
from remap.stream.uploading import write

MARK = "died-already"


def run_unit(unit: Unit) -> object:
    """As ``elsewhere.run_unit``; the first time it writes wrong bytes to half of its file, and is killed."""
    if _first(unit.target.path.parents[1]):
        with unit.target.path.open("r+b") as f:
            f.seek(unit.task.offset)
            f.write(b"\xee" * (unit.task.nbytes // 2))
        os.kill(os.getpid(), signal.SIGKILL)
    return elsewhere.run_unit(unit)


def send_unit(unit: write.Unit) -> object:
    """As ``write.send_unit``; the first time it is killed when half of its file is sent."""
    if not _first(Path(os.environ["DYING"])):
        return write.send_unit(unit)
    half = unit._replace(parts=unit.parts[: len(unit.parts) // 2])
    write.send_file(
        write.OutFile(unit.path.name, half.parts), unit.path, lambda o: None, unit.budget, lambda n: None
    )
    os.kill(os.getpid(), signal.SIGKILL)
    return None


def refuse(unit: object) -> object:
    """Takes its worker along every time."""
    os.kill(os.getpid(), signal.SIGKILL)
    return unit


def _first(folder: Path) -> bool:
    try:
        (folder / MARK).open("x").close()
    except FileExistsError:
        return False
    return True
