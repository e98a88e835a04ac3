"""One task: bytes are read into a buffer, summed there, and written from there.

``copy_file_range`` would save a copy and leave nothing to take the digest of. Where the file system lets
files share blocks, the bytes are read and summed, and not written at all.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from remap.expr import blocks
from remap.expr.ranges import Run
from remap.formats.base import Literal, Part, TensorBytes
from remap.stream.read import Sources, read_runs
from remap.stream.sharing import Sharing
from remap.stream.sink import Into, Progress, Sink
from remap.stream.sums import Sum, Summed, Turns
from remap.stream.work import BlockTask, Task, runs_of
from remap.types import Span


class Target(NamedTuple):
    """A file that is being written: its path, whether it is sealed, and which sources it may share with."""

    path: Path
    sealed: bool
    sharing: Sharing


def run_task(task: Task, target: Target, budget: int, progress: Progress) -> dict[int, Summed]:
    """Write the task's parts; the sums of each by its number in the file."""
    fd = os.open(target.path, os.O_WRONLY)
    try:
        return write_parts(task, fd, target.sealed, target.sharing, budget, progress)
    finally:
        os.close(fd)


def write_parts(
    task: Task, into: Into, sealed: bool, sharing: Sharing | None, budget: int, progress: Progress
) -> dict[int, Summed]:
    """Write the task's parts to a file that is open, at their place or one after another; the sums of each by
    its number in the file.

    sealed   CRC-32 are wanted of all parts
    sharing  source files whose blocks may be shared, None where none can be
    budget   bytes that a computed block may take
    """
    sums: dict[int, Summed] = {}
    with Sources() as sources:
        sink = Sink(into, task.offset, sources.fd, progress)
        for number, part in enumerate(task.parts, task.first):
            total = Sum(part, sealed)
            _write(part, sink, total, sources, sharing, budget)
            sums[number] = total.done()
        sink.flush()
    return sums


def run_block(task: BlockTask, target: Target, turns: Turns, progress: Progress) -> dict[int, Summed]:
    """Compute a block and write it; the tensor's sums once it is the last."""
    data = blocks.block(task.part.expr, task.box)
    fd = os.open(target.path, os.O_WRONLY)
    try:
        with Sources() as sources:
            sink = Sink(fd, task.offset, sources.fd, progress)
            sink.write(data)
            sink.flush()
    finally:
        os.close(fd)
    turns.add(task.number, data)
    return {task.first: turns.done()} if task.number == task.count - 1 else {}


def _write(
    part: Part, sink: Sink, total: Sum, sources: Sources, sharing: Sharing | None, budget: int
) -> None:
    runs = runs_of(part)
    if isinstance(part, Literal):
        total.add(part.data)
        sink.write(part.data)
    elif runs is None:
        assert isinstance(part, TensorBytes)
        for block in blocks.blocks(part.expr, budget):
            total.add(block)
            sink.write(block)
    elif sharing is not None and (span := _whole(runs)) and sink.shares(span) and span.file in sharing:
        for data in read_runs(runs, sources, sink.scratch):
            total.add(data)
        sink.share(span)
    else:
        for data in read_runs(runs, sources, sink.room):
            total.add(data)
            sink.took(len(data))


def _whole(runs: list[Run]) -> Span | None:
    """The one stretch of a file that the runs are, None where they are more, or none."""
    return runs[0] if len(runs) == 1 and isinstance(runs[0], Span) else None
