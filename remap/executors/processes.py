"""``processes``: of this machine, started anew (a fork would carry along threads' locks)."""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ProcessPoolExecutor

from remap.executors.base import Workers


def workers(address: str, jobs: int) -> Workers:
    """``jobs`` processes."""
    context = multiprocessing.get_context("spawn")
    return Workers(lambda: ProcessPoolExecutor(jobs, mp_context=context))
