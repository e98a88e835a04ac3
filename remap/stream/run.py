"""Writing all files of an output into a folder, on a few threads."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from threading import Event

from remap.errors import UsageError
from remap.formats.base import OutFile, TensorBytes
from remap.stream.copy import Progress, Sum, run_task
from remap.stream.work import Task, needs, tasks

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
) -> Written:
    """Write ``files`` into ``folder``, which exists and is empty.

    jobs      threads, at most; fewer where their blocks would not fit ``memory`` together
    sync      wait until the disk has them
    progress  called with the number of bytes after every write, from any thread

    Raises UsageError where a block can't fit, Damaged where a source's bytes are wrong, OSError.
    """
    jobs, budget = _share(files, jobs, memory)
    paths = [_create(folder, f) for f in files]
    sums = _run(list(tasks(files)), files, paths, jobs, budget, progress)
    for number, (file, path) in enumerate(zip(files, paths, strict=True)):
        _finish(path, folder / file.name, file, [sums[number, i].crc for i in range(len(file.parts))], sync)
    digests = {
        part.key: digest
        for number, file in enumerate(files)
        for i, part in enumerate(file.parts)
        if isinstance(part, TensorBytes) and (digest := sums[number, i].digest)
    }
    return Written(digests, {f.name: f.nbytes for f in files})


def _share(files: Sequence[OutFile], jobs: int | None, memory: int) -> tuple[int, int]:
    """How many threads, and the bytes that each may compute with."""
    if jobs is not None and jobs < 1:
        raise UsageError(f"{jobs} threads can't do anything", remedy="give --jobs 1 or more")
    jobs = jobs or default_jobs()
    large = {k: n for k, n in needs(files, memory // jobs).items() if n > memory // jobs}
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


def _create(folder: Path, file: OutFile) -> Path:
    """An empty file of the right size, under the name of an unfinished one."""
    path = folder / f"{file.name}{UNFINISHED}"
    if not path.resolve().is_relative_to(folder.resolve()):
        raise UsageError(f"{file.name!r} lies outside the destination")
    path.parent.mkdir(parents=True, exist_ok=True)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        os.truncate(fd, file.nbytes)
    finally:
        os.close(fd)
    return path


def _finish(path: Path, final: Path, file: OutFile, crcs: Sequence[int], sync: bool) -> None:
    """Put the checksums in, and give the file its name."""
    fd = os.open(path, os.O_WRONLY)
    try:
        for offset, data in file.seal(crcs) if file.seal else ():
            os.pwrite(fd, data, offset)
        if sync:
            os.fsync(fd)
    finally:
        os.close(fd)
    os.rename(path, final)


def _run(
    work: list[Task],
    files: Sequence[OutFile],
    paths: Sequence[Path],
    jobs: int,
    budget: int,
    progress: Progress,
) -> dict[tuple[int, int], Sum]:
    """Every task, on ``jobs`` threads. An error, or Ctrl-C, stops them at their next write."""
    stop = Event()

    def told(nbytes: int) -> None:
        if stop.is_set():
            raise InterruptedError
        progress(nbytes)

    sums: dict[tuple[int, int], Sum] = {}
    pool = ThreadPoolExecutor(jobs)
    try:
        futures: dict[Future[dict[int, Sum]], Task] = {}
        for task in work:
            sealed = files[task.file].seal is not None
            futures[pool.submit(run_task, task, paths[task.file], sealed, budget, told)] = task
        done, _ = wait(futures, return_when=FIRST_EXCEPTION)
        for future in sorted(done, key=lambda f: f.exception() is None):  # errors first
            for number, total in future.result().items():
                sums[futures[future].file, number] = total
    finally:
        stop.set()
        pool.shutdown(cancel_futures=True)
    return sums
