"""A process whose system fails at one call: killed there, or told that the disk is full, or broken.

Every call that changes a disk is counted: the n-th is the n-th boundary.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

CHANGING = (
    "pwrite",
    "ftruncate",
    "truncate",
    "fsync",
    "mkdir",
    "rename",
    "replace",
    "link",
    "unlink",
    "rmdir",
)
WRITING = {"pwrite"}
FAULTS = ("kill", "torn", "ENOSPC", "EIO", "short")
"""Killed before the call; killed in the middle of a write; refused; half a write, and success."""

Main = Callable[[], object]


class Counted:
    """Patches the system of this process; ``fault`` strikes at boundary ``at``, counted from 0."""

    def __init__(self, fault: str = "", at: int = -1) -> None:
        self.fault = fault
        self.at = at
        self.calls: list[str] = []
        for name in CHANGING:
            setattr(os, name, self._patched(name, getattr(os, name)))
        self._patch_open()
        self._patch_swap()

    def _patched(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            return self.meet(name, real, *arguments, **options)

        return call

    def _patch_open(self) -> None:
        real = os.open

        def opened(path: Any, flags: int, *arguments: Any, **options: Any) -> int:
            if flags & os.O_CREAT:
                return self.meet("open", real, path, flags, *arguments, **options)
            return real(path, flags, *arguments, **options)

        os.open = opened  # type: ignore[assignment]

    def _patch_swap(self) -> None:
        from remap.stream.placing import names, staging

        real = names.swap
        staging.swap = lambda *paths: self.meet("swap", real, *paths)

    def meet(self, name: str, real: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """One call: let it pass, or let the fault strike."""
        self.calls.append(name)
        if len(self.calls) - 1 != self.at:
            return real(*arguments, **options)
        if self.fault == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.fault in ("torn", "short") and name in WRITING:
            fd, data, offset = arguments
            n = real(fd, memoryview(data)[: (len(data) + 1) // 2], offset)
            if self.fault == "torn":
                os.kill(os.getpid(), signal.SIGKILL)
            return n
        if self.fault in ("ENOSPC", "EIO"):
            code = getattr(errno, self.fault)
            raise OSError(code, os.strerror(code))
        return real(*arguments, **options)


def run(arguments: Sequence[object], fault: str, at: int, log: Path) -> tuple[int, list[str]]:
    """``remap`` with these arguments in a fork of this process: its exit code (-9 where it was killed), and
    the calls that it made where it lived. Its messages go to ``log``."""
    calls = log.with_suffix(".calls")
    child = os.fork()
    if not child:
        try:
            with log.open("w") as out:
                os.dup2(out.fileno(), 1)
                os.dup2(out.fileno(), 2)
            sys.stdout, sys.stderr = os.fdopen(1, "w", 1), os.fdopen(2, "w", 1)
            counted = Counted(fault, at)
            code = command(arguments)
            calls.write_text(" ".join(counted.calls))
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
        finally:
            os._exit(99)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    return code, calls.read_text().split() if code >= 0 and calls.exists() else []


def command(arguments: Sequence[object]) -> int:
    """``remap`` in this process, with its results left unprinted: its exit code."""
    from remap.cli.main import main

    sys.argv = ["remap", *map(str, arguments)]
    with contextlib.redirect_stdout(io.StringIO()):
        try:
            main()
        except SystemExit as e:
            return int(e.code or 0)
    return 0
