"""Whole commands, timed in turn (A B C A B C ...) on one machine, with their processor time and peak memory.

Time is the wall clock; processor time (user and system) says the same with less noise on a busy machine;
memory is the largest resident set of the process, as the kernel accounts for it. Commands take turns so that
a drift of the machine's speed hits all of them alike, and a ratio is the median of the rounds' ratios.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

REMAP = Path(sys.executable).with_name("remap")
RESULTS = "BENCH_RESULTS"
"""Variable with the file to which ``report`` appends a line of JSON for each table."""


def arguments(about: str, *, gb: float, rounds: int = 3) -> argparse.Namespace:
    """What a benchmark of files is told (``gb``, ``rounds``, ``folder``); ``about`` is its docstring."""
    parser = argparse.ArgumentParser(description=about.split("\n\n")[0])
    parser.add_argument("--gb", type=float, default=gb)
    parser.add_argument("--rounds", type=int, default=rounds)
    parser.add_argument("--folder", type=Path, help="where to put the files; they are removed")
    return parser.parse_args()


@dataclass(frozen=True)
class Run:
    """One run of a command: seconds, of the wall clock and of processors, and MB of peak memory."""

    seconds: float
    cpu: float
    megabytes: float


@dataclass(frozen=True)
class Figure:
    """Every counted run of a command, round by round."""

    runs: tuple[Run, ...]

    @property
    def seconds(self) -> float:
        return median(r.seconds for r in self.runs)

    @property
    def cpu(self) -> float:
        return median(r.cpu for r in self.runs)

    @property
    def megabytes(self) -> float:
        return median(r.megabytes for r in self.runs)

    def ratio(self, base: Figure) -> float:
        return median(a.seconds / b.seconds for a, b in zip(self.runs, base.runs, strict=True))


@dataclass(frozen=True)
class Limit:
    """What a row may take at most: as a ratio to the base, in seconds, in MB."""

    ratio: float | None = None
    seconds: float | None = None
    megabytes: float | None = None


def measure(commands: Mapping[str, Sequence[str]], outputs: Path, rounds: int = 3) -> dict[str, Figure]:
    """Run every command ``rounds`` times after one round that is not counted; ``outputs`` is emptied
    before each run."""
    seen: dict[str, list[Run]] = {name: [] for name in commands}
    for round_ in range(rounds + 1):
        for name, command in commands.items():
            shutil.rmtree(outputs, ignore_errors=True)
            outputs.mkdir(parents=True)
            os.sync()  # nobody pays for what the one before left to be written
            run = once(command)
            if round_:
                seen[name].append(run)
    shutil.rmtree(outputs, ignore_errors=True)
    return {name: Figure(tuple(runs)) for name, runs in seen.items()}


def once(command: Sequence[str]) -> Run:
    """One run. Python's modules are compiled beforehand, as they are where a package was installed."""
    compiled = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    with tempfile.TemporaryFile() as said:
        start = time.perf_counter()
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=said, env=compiled)
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            said.seek(0)
            raise SystemExit(f"{shlex.join(command)}: exit code {process.returncode}\n{said.read().decode()}")
    return Run(seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1000)


def report(
    title: str,
    figures: Mapping[str, Figure],
    base: str,
    *,
    limits: Mapping[str, Limit] | None = None,
    absent: Mapping[str, str] | None = None,
) -> None:
    """A markdown table, and a record for ``run.py``.

    base    what the ratios are to
    limits  what rows are to keep to
    absent  what was not measured, and why
    """
    rows = [
        {
            "name": name,
            "seconds": f.seconds,
            "cpu": f.cpu,
            "megabytes": f.megabytes,
            "ratio": f.ratio(figures[base]),
            "limit": {k: v for k, v in asdict((limits or {}).get(name, Limit())).items() if v is not None},
            "runs": [asdict(r) for r in f.runs],
        }
        for name, f in figures.items()
    ]
    found = {"title": title, "base": base, "rows": rows, "absent": dict(absent or {})}
    print(f"\n{title}\n\n{table(found)}", flush=True)
    record(found)


def table(found: Mapping[str, Any]) -> str:
    """A record as a markdown table; a limit stands beside what it limits."""
    lines = [
        f"| | seconds | cpu | peak MB | time / {found['base']} |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    for row in found["rows"]:
        digits = {"seconds": 2, "cpu": 2, "megabytes": 0, "ratio": 2}
        cells = []
        for what, n in digits.items():
            limit = row["limit"].get(what)
            bound = (
                "" if limit is None else f" (limit {limit:.{n}f}{'' if row[what] <= limit else ', missed'})"
            )
            cells.append(f"{row[what]:.{n}f}{bound}")
        lines.append(f"| {row['name']} | {' | '.join(cells)} |")
    lines += [f"| {name} | {why} | | | |" for name, why in found["absent"].items()]
    return "\n".join(lines)


def record(table: dict[str, object]) -> None:
    """Append to the file that ``run.py`` reads, where it asked for one."""
    if path := os.environ.get(RESULTS):
        with open(path, "a") as f:
            f.write(json.dumps({"script": Path(sys.argv[0]).stem, **table}) + "\n")
