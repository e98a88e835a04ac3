"""Writing all files of an output into a folder, on a few threads."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path

from remap.formats.base import OutFile, TensorBytes
from remap.stream.copy import Progress, Sum, run_task
from remap.stream.work import Task, check_memory, tasks

MEMORY = 1 << 30
"""Bytes that computed blocks may take together, unless the user says otherwise."""


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

    jobs      threads; each may compute one block of ``memory // jobs`` bytes at a time
    sync      wait until the disk has them
    progress  called with the number of bytes after every write, from any thread

    Raises UsageError where a block can't fit, Damaged where a source's bytes are wrong, OSError.
    """
    jobs = jobs or default_jobs()
    check_memory(files, memory // jobs)
    fds = [_create(folder / f.name, f.nbytes) for f in files]
    try:
        sums = _run(list(tasks(files)), files, fds, jobs, memory // jobs, progress)
        for number, (file, fd) in enumerate(zip(files, fds, strict=True)):
            if file.seal is not None:
                for offset, data in file.seal([sums[number, i].crc for i in range(len(file.parts))]):
                    os.pwrite(fd, data, offset)
            if sync:
                os.fsync(fd)
    finally:
        for fd in fds:
            os.close(fd)
    digests = {
        part.key: digest
        for number, file in enumerate(files)
        for i, part in enumerate(file.parts)
        if isinstance(part, TensorBytes) and (digest := sums[number, i].digest)
    }
    return Written(digests, {f.name: f.nbytes for f in files})


def _create(path: Path, size: int) -> int:
    path.parent.mkdir(parents=True, exist_ok=True)
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
    os.truncate(fd, size)
    return fd


def _run(
    work: list[Task], files: Sequence[OutFile], fds: list[int], jobs: int, budget: int, progress: Progress
) -> dict[tuple[int, int], Sum]:
    sums: dict[tuple[int, int], Sum] = {}
    with ThreadPoolExecutor(jobs) as pool:
        futures: dict[Future[dict[int, Sum]], Task] = {}
        for task in work:
            sealed = files[task.file].seal is not None
            futures[pool.submit(run_task, task, fds[task.file], sealed, budget, progress)] = task
        done, pending = wait(futures, return_when=FIRST_EXCEPTION)
        for future in pending:
            future.cancel()
        for future in done:
            for number, total in future.result().items():
                sums[futures[future].file, number] = total
    return sums
