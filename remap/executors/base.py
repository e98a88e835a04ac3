"""What a module of ``remap.executors`` gives."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Executor
from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol

LOST: tuple[type[BaseException], ...] = (BrokenExecutor,)
"""Errors that say that a worker is gone, and nothing of its work."""


class Workers(NamedTuple):
    """Workers, wherever they are.

    begin  opens the executor; asked again where the last one is broken
    lost   errors of a future that say that its worker is gone
    """

    begin: Callable[[], AbstractContextManager[Executor]]
    lost: tuple[type[BaseException], ...] = LOST


class Opener(Protocol):
    """``workers`` of a module."""

    def __call__(self, address: str, jobs: int) -> Workers:
        """The workers at ``address`` (what follows ``://``, or ""), ``jobs`` of them where they are to be
        started. Raises UsageError where they can't be had."""
        ...
