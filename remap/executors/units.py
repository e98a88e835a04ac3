"""Runs units of work on workers, in any order, each until it was done once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future, as_completed
from typing import TypeVar

from remap.errors import UsageError
from remap.executors.base import Workers

K = TypeVar("K")
T = TypeVar("T")
R = TypeVar("R")

TRIES = 3
"""How often the workers may be lost before what is left is given up."""


def run_units(
    workers: Workers, work: Callable[[T], R], units: Mapping[K, T], done: Callable[[K, R], None]
) -> None:
    """Do ``work`` on every unit. What a lost worker had in hand is done again by another: a unit may be done
    twice, and twice must be as once.

    work  a function that pickle finds by its name; units and results are plain values
    done  called here with every result, as they come

    Raises what ``work`` raises, after the first; UsageError where workers are lost again and again.
    """
    left = dict(units)
    for _ in range(TRIES):
        if not left:
            return
        with workers.begin() as pool:
            _run(pool, workers.lost, work, left, done)
    if left:
        raise UsageError(
            f"{len(left)} of {len(units)} units of work were lost with their workers, {TRIES} times over",
            remedy="look at the workers' own messages: they may have too little memory (--memory)",
        )


def _run(
    pool: Executor,
    lost: tuple[type[BaseException], ...],
    work: Callable[[T], R],
    left: dict[K, T],
    done: Callable[[K, R], None],
) -> None:
    futures: dict[Future[R], K] = {}
    try:
        try:
            for key, unit in left.items():
                futures[pool.submit(work, unit)] = key
        except lost:  # already: the rest is for the next
            pass
        for future in as_completed(futures):
            try:
                result = future.result()
            except lost:
                continue
            del left[futures[future]]
            done(futures[future], result)
    finally:
        for future in futures:
            future.cancel()
