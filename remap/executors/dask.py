"""``dask://host:port``: the workers of a Dask scheduler. They see the files under the same names, and have
the same version of remap."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import contextmanager

from remap.errors import UsageError
from remap.executors.base import LOST, Workers

PATIENCE = 20
"""Seconds that a scheduler may take to answer."""


def workers(address: str, jobs: int) -> Workers:
    """All workers of the scheduler at ``host:port``."""
    try:
        from distributed import Client, KilledWorker
    except ImportError:
        raise UsageError("Dask is not installed", remedy="pip install 'remap[dask]'") from None
    if not address:
        raise UsageError("which scheduler?", remedy="give --executor dask://host:port")

    @contextmanager
    def begin() -> Iterator[Executor]:
        try:
            client = Client(  # type: ignore[no-untyped-call]
                f"tcp://{address}", timeout=PATIENCE, set_as_default=False
            )
        except (OSError, ValueError) as e:
            raise UsageError(
                f"no Dask scheduler answers: {e}",
                where=address,
                remedy="start one with dask scheduler, and dask worker where the files are",
            ) from None
        with client:
            yield client.get_executor(pure=False)  # type: ignore[no-untyped-call]

    return Workers(begin, (*LOST, KilledWorker))
