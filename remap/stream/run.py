"""Writing all files of an output into a folder, on a few threads."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from threading import Event

from remap.errors import UsageError
from remap.executors.base import Workers
from remap.expr import blocks
from remap.formats.base import OutFile, TensorBytes
from remap.stream import work
from remap.stream.copy import Target, run_block, run_task
from remap.stream.disk import reserve, write_all
from remap.stream.elsewhere import run_elsewhere
from remap.stream.placing.journal import Journal
from remap.stream.sharing import Sharing
from remap.stream.sink import Progress
from remap.stream.sums import Summed, Turns
from remap.stream.work import BlockTask, Place, Task

MEMORY = 1 << 30
"""Bytes that computed blocks may take together, unless the user says otherwise."""

UNFINISHED = ".part"
"""Suffix of a file until all of it is written: no loader takes it for a checkpoint."""


@dataclass(frozen=True, slots=True)
class Written:
    """What was written: digest (xxh3-128, hex) by output key, size in bytes by file name."""

    digests: Mapping[str, str]
    sizes: Mapping[str, int]


def default_jobs() -> int:
    """Threads: two keep a disk busy and a core hashing; more than four only add contention."""
    return max(1, min(4, os.cpu_count() or 1))


def write_files(
    files: Sequence[OutFile],
    folder: Path,
    *,
    jobs: int | None = None,
    memory: int = MEMORY,
    sync: bool = False,
    progress: Progress = lambda n: None,
    journal: Journal | None = None,
    workers: Workers | None = None,
) -> Written:
    """Write ``files`` into ``folder``, which exists and is empty, or has what the ``journal`` tells of.

    jobs      threads, at most; fewer where their blocks would not fit ``memory`` together
    sync      wait until the disk has them
    progress  called with the number of bytes after every write, from any thread
    journal   is told of every part that is written; what it has already is not written again
    workers   who does it instead of this process' threads; what they write is seen here under the same names

    Raises UsageError where a block can't fit, Damaged where a source's bytes are wrong, OSError.
    """
    computed = work.computed(files)
    jobs, budget = share_memory(computed, jobs, memory)
    sharing = Sharing(folder)
    targets = [Target(_create(folder, f, sharing), f.seal is not None, sharing) for f in files]
    known = journal.recall(files, [t.path for t in targets]) if journal else {}
    todo = work.largest_first(
        [
            t
            for t in work.tasks(files, () if workers else computed, budget)
            if not (known and t.places <= known.keys())
        ]
    )
    if known:
        progress(_skipped(files, known, todo))
    if workers:
        sums = known | run_elsewhere(todo, targets, workers, budget, sync, progress, journal)
    else:
        sums = known | _run(todo, targets, jobs, budget, progress, journal)
    for number, (file, target) in enumerate(zip(files, targets, strict=True)):
        _seal(target.path, file, [sums[number, i].crc for i in range(len(file.parts))], sync)
    for file, target in zip(files, targets, strict=True):
        os.rename(target.path, folder / file.name)
    digests = {
        part.key: digest
        for number, file in enumerate(files)
        for i, part in enumerate(file.parts)
        if isinstance(part, TensorBytes) and (digest := sums[number, i].digest)
    }
    return Written(digests, {f.name: f.nbytes for f in files})


def _skipped(
    files: Sequence[OutFile], known: Mapping[Place, Summed], todo: Sequence[Task | BlockTask]
) -> int:
    """Bytes that are not written again."""
    again = {place for task in todo for place in task.places}
    return sum(files[file].parts[i].nbytes for file, i in known.keys() - again)


def share_memory(computed: Mapping[Place, TensorBytes], jobs: int | None, memory: int) -> tuple[int, int]:
    """How many threads, and the bytes that each may compute with."""
    if jobs is not None and jobs < 1:
        raise UsageError(f"{jobs} threads can't do anything", remedy="give --jobs 1 or more")
    jobs = jobs or default_jobs()
    needs = {p.key: blocks.peak(p.expr, memory // jobs) for p in computed.values()}
    large = {k: n for k, n in needs.items() if n > memory // jobs}
    if not large:
        return jobs, memory // jobs
    most = max(large.values())
    if most > memory:
        raise UsageError(
            f"{sum(n > memory for n in large.values())} tensors can't be computed within --memory {memory}",
            problems=[f"{k}: needs {n} bytes" for k, n in large.items() if n > memory],
            remedy=f"give --memory {most} or more",
        )
    jobs = max(1, memory // most)
    return jobs, memory // jobs


def _create(folder: Path, file: OutFile, sharing: Sharing) -> Path:
    """A file of the right size, under the name of an unfinished one; its blocks are set aside but for those
    that it will share."""
    path = folder / f"{file.name}{UNFINISHED}"
    if not path.resolve().is_relative_to(folder.resolve()):
        raise UsageError(f"{file.name!r} lies outside the destination")
    path.parent.mkdir(parents=True, exist_ok=True)
    if (folder / file.name).exists():  # by a run that was killed before it had put all in place
        os.rename(folder / file.name, path)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o666)
    try:
        if os.fstat(fd).st_size == file.nbytes:
            return path
        if sharing.bytes_of(file):
            os.truncate(fd, file.nbytes)
        else:
            reserve(fd, file.nbytes)
    finally:
        os.close(fd)
    return path


def _seal(path: Path, file: OutFile, crcs: Sequence[int], sync: bool) -> None:
    """Put the checksums in."""
    fd = os.open(path, os.O_WRONLY)
    try:
        for offset, data in file.seal(crcs) if file.seal else ():
            write_all(fd, data, offset)
        if sync:
            os.fsync(fd)
    finally:
        os.close(fd)


def _run(
    todo: Sequence[Task | BlockTask],
    targets: Sequence[Target],
    jobs: int,
    budget: int,
    progress: Progress,
    journal: Journal | None,
) -> dict[Place, Summed]:
    """Every task, on ``jobs`` threads. An error, or Ctrl-C, stops them at their next write."""
    stop = Event()
    turns: dict[Place, Turns] = {}

    def told(nbytes: int) -> None:
        if stop.is_set():
            raise InterruptedError
        progress(nbytes)

    def run(task: Task | BlockTask) -> dict[int, Summed]:
        target = targets[task.file]
        if isinstance(task, Task):
            return run_task(task, target, budget, told)
        return run_block(task, target, turns[task.file, task.first], told)

    for task in todo:
        if isinstance(task, BlockTask) and task.number == 0:
            turns[task.file, task.first] = Turns(task.part, targets[task.file].sealed, stop.is_set)
    sums: dict[Place, Summed] = {}
    pool = ThreadPoolExecutor(jobs)
    try:
        futures = {pool.submit(run, task): task.file for task in todo}
        for future in as_completed(futures):
            found, file = future.result(), futures[future]
            sums.update({(file, number): total for number, total in found.items()})
            if journal:
                journal.add(file, found)
    finally:
        stop.set()
        pool.shutdown(cancel_futures=True)
    return sums
