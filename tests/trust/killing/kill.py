"""Conversions killed at every boundary: a table of what held, and exit code 1 where anything did not.

    python tests/trust/killing/kill.py [--every N] [--only NAME]

After each fault the destination holds the old output or the new one, byte for byte; nothing has a name that
a loader takes before it is whole; and the same command with --resume finishes with the same bytes.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from trust.killing.conversions import CONVERSIONS, Conversion, sources
from trust.killing.faults import FAULTS, WRITING, command, run
from trust.killing.in_place import Renamed

from remap import api
from remap.errors import RemapError

Files = Mapping[str, bytes]


def files(parent: Path, name: str) -> Files:
    """All that an output is: its files, and the receipt beside a single one."""
    path = parent / name
    if path.is_dir():
        return {str(p.relative_to(parent)): p.read_bytes() for p in path.rglob("*") if p.is_file()}
    return {p.name: p.read_bytes() for p in (path, parent / f"{name}.receipt.json") if p.is_file()}


class Killed:
    """One conversion, and what is right of it: the old output (none, maybe) and the new one."""

    def __init__(self, conversion: Conversion, work: Path, plain: Path) -> None:
        self.conversion = conversion
        self.work = work
        self.source = conversion.prepare(work, plain)
        self.old_source = plain
        self.log = work / "log"
        clean = self._place("clean")
        self.old = files(clean, conversion.destination)
        assert command(self._command(clean)) == 0  # in this process: what it imports is there for the forks
        self.new = files(clean, conversion.destination)
        counted = self._place("counted")
        code, self.calls = run(self._command(counted), "", -1, self.log)
        assert code == 0, self.log.read_text()
        assert files(counted, conversion.destination) == self.new

    def _place(self, name: str) -> Path:
        place = self.work / name
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        self.conversion.prepare_old(self.old_source, place / self.conversion.destination)
        return place

    def _command(self, place: Path, *more: str) -> list[object]:
        return [*self.conversion.command(self.source, place / self.conversion.destination), *more]

    def faults(self, fault: str, every: int) -> Iterator[str]:
        """What did not hold, one line each boundary: "" where all did."""
        for at, call in enumerate(self.calls):
            if at % every == 0 and (fault not in ("torn", "short") or call in WRITING):
                problem = self._strike(fault, at)
                yield f"{self.conversion.name}: {fault} at {call} {at}: {problem}" if problem else ""

    def _strike(self, fault: str, at: int) -> str:
        place = self._place("struck")
        code, _ = run(self._command(place), fault, at, self.log)
        found = files(place, self.conversion.destination)
        said = self.log.read_text()
        expected = {"kill": (-9,), "torn": (-9,), "short": (0,)}.get(fault, (0, 2))  # 0: as it cleaned up
        if "Traceback" in said or code not in expected:
            return f"exit code {code}: {said}"
        is_new = self._is(found, self.new)
        if not is_new and not self._is(found, self.old):
            return f"the destination is neither old nor new: {sorted(found)}"
        if code == 0 and found != self.new:
            return "exit code 0, and the output is not there"
        return self._misleading(place, found) or self._resumed(place, is_new)

    def _is(self, found: Files, wanted: Files) -> bool:
        """A single file may be without its receipt for a moment; another's it never has."""
        rest = wanted.keys() - found.keys()
        return (
            not found.keys() - wanted.keys()
            and all(found[n] == wanted[n] for n in found)
            and rest <= {f"{self.conversion.destination}.receipt.json"}
        )

    def _misleading(self, place: Path, found: Files) -> str:
        """A file under the name of a finished one that is not whole; a checkpoint where none should be."""
        wrong = [
            str(p)
            for p in (place / f".{self.conversion.destination}.remap").rglob("files-*/**/*")
            if p.is_file() and not p.name.endswith((".part", ".shared", "remap.receipt.json"))
            and p.read_bytes() not in (*self.new.values(), *self.old.values())
        ]  # fmt: skip
        if wrong:
            return f"not whole, under the name of a finished file: {wrong}"
        if not found:
            try:
                api.catalog(place)
                return "its parent is taken for a checkpoint"
            except RemapError:
                pass
        return ""

    def _resumed(self, place: Path, was_new: bool) -> str:
        code, _ = run(self._command(place, "--resume"), "", -1, self.log)
        said = self.log.read_text()
        if files(place, self.conversion.destination) != self.new:
            return f"--resume gave something else (exit code {code}): {said}"
        if code and not (was_new and "exists already" in said):
            return f"--resume failed: {said}"
        left = sorted(p.name for p in place.iterdir() if p.name.endswith(".remap"))
        return f"left behind: {left}" if left else ""


def sweep(every: int, only: str) -> int:
    """Print the table; the number of faults after which something did not hold."""
    problems: list[str] = []
    print("| written | boundaries | " + " | ".join(FAULTS) + " |")
    print("| --- | ---: |" + " ---: |" * len(FAULTS))
    with tempfile.TemporaryDirectory(dir=os.environ.get("KILL_DIR")) as root:
        models = sources(Path(root))
        for number, (name, struck) in enumerate(_struck(models)):
            if only in name:
                work = Path(root) / str(number)
                work.mkdir()
                killed = struck(work)
                cells = []
                for fault in FAULTS:
                    held = Counter(bool(p) for p in _collected(killed.faults(fault, every), problems))
                    cells.append(f"{held[False]}/{held.total()}")
                print(f"| {name} | {len(killed.calls)} | {' | '.join(cells)} |", flush=True)
    print("\n".join(problems), file=sys.stderr)
    return len(problems)


def _struck(models: Mapping[str, Path]) -> Iterator[tuple[str, Callable[[Path], Killed | Renamed]]]:
    """Name -> what is struck, prepared in a folder of its own."""
    for conversion in CONVERSIONS:
        yield conversion.name, partial(Killed, conversion, plain=models[conversion.model])
    plain = models["neox"]
    yield "in place, one file", lambda work: Renamed("in place, one file", work, plain)
    yield "in place, shards", lambda work: Renamed("in place, shards", work, plain, "--shard-size", "1KB")


def _collected(found: Iterator[str], problems: list[str]) -> Iterator[str]:
    for problem in found:
        problems += [problem] * bool(problem)
        yield problem


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--every", type=int, default=1, help="strike at every N-th boundary")
    options.add_argument("--only", default="", help="conversions whose name has this")
    given = options.parse_args()
    sys.exit(sweep(given.every, given.only) > 0)
