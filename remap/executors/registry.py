"""Name of an executor, as ``--executor`` takes it -> its workers."""

from __future__ import annotations

from concurrent.futures import Executor
from contextlib import nullcontext
from importlib import import_module

from remap.errors import UsageError
from remap.executors.base import Opener, Workers
from remap.files.hangups import outlive_hangups

EXECUTORS = {
    "processes": "remap.executors.processes",
    "dask": "remap.executors.dask",
    "mpi": "remap.executors.mpi",
}
"""Name -> module with its ``workers``."""

THREADS = "threads"
"""The threads of this process, which need no executor."""


def find(what: str | Executor | None, jobs: int) -> Workers | None:
    """The workers that are meant, None for this process' own threads.

    what  ``threads``, ``processes``, ``dask://host:port``, ``mpi``; or an executor, which is not shut down

    Raises UsageError.
    """
    if isinstance(what, Executor):
        return Workers(lambda: nullcontext(what))
    name, _, address = (what or THREADS).partition("://")
    if name == THREADS:
        return None
    if name not in EXECUTORS:
        raise UsageError(
            f"no executor is called {name!r}",
            remedy="use threads, processes, dask://host:port or mpi",
        )
    outlive_hangups()
    opener: Opener = import_module(EXECUTORS[name]).workers
    return opener(address, jobs)
