"""Sending all files of an output, on a few threads, each from start to end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import NamedTuple

from remap.executors.base import Workers
from remap.executors.units import run_units
from remap.files.remote import RemotePath
from remap.files.writing import Output
from remap.formats.base import OutFile, Part, TensorBytes
from remap.stream import work
from remap.stream.copy import write_parts
from remap.stream.elsewhere import check_version
from remap.stream.run import Written, share_memory
from remap.stream.sink import Progress
from remap.stream.uploading.sealing import sealed
from remap.stream.work import Task
from remap.version import __version__

Begun = Callable[[Output], None]


def holds_tensors(file: OutFile) -> bool:
    """False for what only describes: an index, a configuration, ``latest``."""
    return any(isinstance(p, TensorBytes) for p in file.parts)


def send_files(
    files: Sequence[OutFile],
    folder: RemotePath,
    begun: Begun,
    *,
    jobs: int | None,
    memory: int,
    progress: Progress,
) -> Written:
    """Send ``files`` to ``folder``: those with tensors, then those that only describe. Nothing is committed.

    begun     is given every file before anything of it is sent
    jobs      files at a time
    memory    bytes that computed blocks may take together
    progress  called with the number of bytes, from any thread

    Raises UsageError where a block can't fit, Damaged where a source's bytes are wrong, DestinationError.
    """
    jobs, budget = share_memory(work.computed(files), jobs, memory)
    stop = Event()

    def told(nbytes: int) -> None:
        if stop.is_set():
            raise InterruptedError
        progress(nbytes)

    def send(file: OutFile) -> dict[str, str]:
        return send_file(file, folder / file.name, begun, budget, told)

    digests: dict[str, str] = {}
    pool = ThreadPoolExecutor(jobs)
    try:
        for some in (True, False):
            for found in pool.map(send, [f for f in files if holds_tensors(f) is some]):
                digests |= found
    finally:
        stop.set()
        pool.shutdown(cancel_futures=True)
    return Written(digests, {f.name: f.nbytes for f in files})


def send_file(
    file: OutFile, path: RemotePath, begun: Begun, budget: int, progress: Progress
) -> dict[str, str]:
    """Send one file; the digests of its tensors by key."""
    file = sealed(file, budget)
    output = Output(path, file.nbytes)
    begun(output)
    sums = write_parts(Task(0, 0, 0, file.parts), output, False, None, budget, progress)
    output.close()
    return {
        part.key: digest
        for number, part in enumerate(file.parts)
        if isinstance(part, TensorBytes) and (digest := sums[number].digest)
    }


class Unit(NamedTuple):
    """A file that a worker sends: its parts and its path; ``budget``: bytes for computed blocks."""

    parts: tuple[Part, ...]
    path: RemotePath
    budget: int
    version: str = __version__


def send_unit(unit: Unit) -> dict[str, str]:
    """Send a file and let it be seen; done twice it is as done once. The digests of its tensors by key."""
    check_version(unit.version)
    begun: list[Output] = []
    file = OutFile(unit.path.name, unit.parts)
    try:
        found = send_file(file, unit.path, begun.append, unit.budget, lambda n: None)
    except BaseException:
        for output in begun:
            output.discard()
        raise
    begun[0].commit()
    return found


def send_elsewhere(
    files: Sequence[OutFile],
    folder: RemotePath,
    workers: Workers,
    *,
    jobs: int | None,
    memory: int,
    progress: Progress,
) -> dict[str, str]:
    """As ``send_files``, by workers: each sends whole files, which are seen one by one. Gives the digests."""
    _, budget = share_memory(work.computed(files), jobs, memory)
    units = {f.name: Unit(sealed(f, budget).parts, folder / f.name, budget) for f in files}
    sizes = {f.name: f.nbytes for f in files}
    digests: dict[str, str] = {}

    def done(name: str, found: dict[str, str]) -> None:
        digests.update(found)
        progress(sizes[name])

    run_units(workers, send_unit, units, done)
    return digests
