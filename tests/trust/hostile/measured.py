"""remap in a process of its own, with the time and the memory that it took.

Processes are forked from one that has remap imported, and little else: that takes a tenth of the time of a
new interpreter, and the system's account of memory does not include that of the tests.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from functools import lru_cache
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
    server = _server()
    assert server.stdin is not None
    assert server.stdout is not None
    server.stdin.write(json.dumps([str(cwd), *map(str, arguments)]) + "\n")
    server.stdin.flush()
    return Outcome(*json.loads(server.stdout.readline()))


def check(outcome: Outcome, code: int) -> None:
    """One clear message where it is refused, no traceback, within the limits."""
    assert outcome.code == code, outcome
    assert "Traceback" not in outcome.err, outcome
    assert outcome.err.count("error: ") == (code != 0), outcome
    assert outcome.seconds < SECONDS, outcome
    assert outcome.mb < MEGABYTES, outcome


@lru_cache(1)
def _server() -> subprocess.Popen[str]:
    """It ends when its input does: with this process."""
    command = [sys.executable, "-c", "from trust.hostile.measured import serve; serve()"]
    path = os.pathsep.join([str(Path(__file__).parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])])
    return subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    )


def serve() -> None:
    """Answer every line of stdin, a folder and arguments, with an outcome."""
    import remap.api
    import remap.cli.main

    for name in remap.cli.main.COMMANDS:
        remap.cli.main.cli.get_command(None, name)  # type: ignore[arg-type]
    for line in sys.stdin:
        folder, *arguments = json.loads(line)
        sys.stdout.write(json.dumps(_forked(folder, arguments)) + "\n")
        sys.stdout.flush()


def _forked(folder: str, arguments: list[str]) -> list[object]:
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        child = os.fork()
        if not child:
            _run(folder, arguments, out.fileno(), err.fileno())
        limit = time.monotonic() + 8 * SECONDS  # of the wall's clock: other work may share the processor
        while True:
            pid, status, usage = os.wait4(child, os.WNOHANG)
            if pid:
                break
            if time.monotonic() > limit:
                os.kill(child, 9)
            time.sleep(0.003)
        out.seek(0)
        err.seek(0)
        seconds = usage.ru_utime + usage.ru_stime
        code = os.waitstatus_to_exitcode(status)
        return [code, out.read().decode(), err.read().decode(), seconds, usage.ru_maxrss / 1024]


def _run(folder: str, arguments: list[str], out: int, err: int) -> None:
    """Never returns."""
    from traceback import print_exc

    from remap.cli.main import main

    code = 1
    try:
        os.chdir(folder)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(out, 1)
        os.dup2(err, 2)
        sys.argv = ["remap", *arguments]
        main()
    except SystemExit as e:
        code = int(e.code or 0)
    except BaseException:
        print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
