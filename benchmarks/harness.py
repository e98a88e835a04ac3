"""Whole commands, timed in turn (A B C A B C ...) on one machine, with their peak memory.

Time is the wall clock, memory the largest resident set of the process, as the kernel accounts for it.
Commands take turns so that a drift of the machine's speed hits all of them alike.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median


@dataclass(frozen=True)
class Figure:
    """Medians over the rounds: seconds, and MB of peak memory."""

    seconds: float
    megabytes: float


def measure(commands: Mapping[str, Sequence[str]], outputs: Path, rounds: int = 3) -> dict[str, Figure]:
    """Run every command ``rounds`` times after one round that is not counted; ``outputs`` is emptied
    before each run."""
    seen: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
    for round_ in range(rounds + 1):
        for name, command in commands.items():
            shutil.rmtree(outputs, ignore_errors=True)
            outputs.mkdir(parents=True)
            os.sync()  # nobody pays for what the one before left to be written
            figure = _run(command)
            if round_:
                seen[name].append(figure)
    shutil.rmtree(outputs, ignore_errors=True)
    return {
        name: Figure(median(s for s, _ in runs), median(m for _, m in runs)) for name, runs in seen.items()
    }


def _run(command: Sequence[str]) -> tuple[float, float]:
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)}: exit code {process.returncode}")
    return seconds, usage.ru_maxrss / 1000


def report(title: str, figures: Mapping[str, Figure], base: str) -> None:
    """A markdown table; the last column is the time as a ratio to ``base``."""
    print(f"\n{title}\n\n| | seconds | peak MB | time / {base} |\n| --- | ---: | ---: | ---: |")
    for name, f in figures.items():
        ratio = f.seconds / figures[base].seconds
        print(f"| {name} | {f.seconds:.2f} | {f.megabytes:.0f} | {ratio:.2f} |", flush=True)
