"""remap in a process of its own, with the time and the memory that it took."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

SECONDS, MEGABYTES = 5, 500
"""What any input may cost before it is opened or refused."""


@dataclass(frozen=True)
class Outcome:
    """How a command ended. ``seconds`` of processor time, ``mb`` of memory at its peak."""

    code: int
    out: str
    err: str
    seconds: float
    mb: float


def remap(*arguments: object, cwd: Path) -> Outcome:
    """Run a command line in ``cwd``. One that waits for ever is killed, and its code is -9."""
    command = [sys.executable, "-m", "remap", *map(str, arguments)]
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = subprocess.Popen(command, cwd=cwd, stdout=out, stderr=err, stdin=subprocess.DEVNULL)
        limit = time.monotonic() + 8 * SECONDS  # of the wall's clock: other work may share the processor
        while True:
            pid, status, usage = os.wait4(process.pid, os.WNOHANG)
            if pid:
                break
            if time.monotonic() > limit:
                process.kill()
            time.sleep(0.005)
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        err.seek(0)
        return Outcome(
            process.returncode,
            out.read().decode(),
            err.read().decode(),
            usage.ru_utime + usage.ru_stime,
            usage.ru_maxrss / 1024,
        )


def check(outcome: Outcome, code: int) -> None:
    """One clear message where it is refused, no traceback, within the limits."""
    assert outcome.code == code, outcome
    assert "Traceback" not in outcome.err, outcome
    assert outcome.err.count("error: ") == (code != 0), outcome
    assert outcome.seconds < SECONDS, outcome
    assert outcome.mb < MEGABYTES, outcome
