"""Tasks that workers run, who may be on another machine: a unit is a task, its file and how to write it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import NamedTuple

from remap.errors import UsageError
from remap.executors.base import Workers
from remap.executors.units import run_units
from remap.stream.copy import Target, write_parts
from remap.stream.placing.journal import Journal
from remap.stream.sink import Progress
from remap.stream.sums import Summed
from remap.stream.work import BlockTask, Place, Task
from remap.version import __version__


class Unit(NamedTuple):
    """A task and its file; ``budget``: bytes for computed blocks; ``sync``: return when the disk has it."""

    task: Task
    target: Target
    budget: int
    sync: bool
    version: str = __version__


def check_version(version: str) -> None:
    """Raise UsageError on a worker that has another version of remap."""
    if version != __version__:
        raise UsageError(
            f"a worker has remap {__version__}, the command {version}",
            remedy="install the same version there",
        )


def run_unit(unit: Unit) -> dict[int, Summed]:
    """Write a unit's parts, as ``copy.run_task`` does; done twice it is as done once."""
    check_version(unit.version)
    fd = os.open(unit.target.path, os.O_WRONLY)
    try:
        sums = write_parts(
            unit.task, fd, unit.target.sealed, unit.target.sharing, unit.budget, lambda n: None
        )
        if unit.sync:
            os.fsync(fd)
    finally:
        os.close(fd)
    return sums


def run_elsewhere(
    todo: Sequence[Task | BlockTask],
    targets: Sequence[Target],
    workers: Workers,
    budget: int,
    sync: bool,
    progress: Progress,
    journal: Journal | None,
) -> dict[Place, Summed]:
    """The sums of every part of ``todo``, which workers write into files that exist."""
    units = {
        number: Unit(task, targets[task.file], budget, sync)
        for number, task in enumerate(todo)
        if isinstance(task, Task)
    }
    sums: dict[Place, Summed] = {}

    def done(number: int, found: dict[int, Summed]) -> None:
        task = units[number].task
        sums.update({(task.file, i): total for i, total in found.items()})
        if journal:
            journal.add(task.file, found)
        progress(task.nbytes)

    run_units(workers, run_unit, units, done)
    return sums
