"""A rename in place, struck at every boundary."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

from trust.killing.faults import WRITING, command, run

from remap import api
from remap.errors import RemapError

Files = Mapping[str, bytes]
PACK = """remap: 1
pack: t/p
version: 1.0.0
title: t
stages:
  - rules:
      - {id: r, from: "gpt_neox.{x:path}", to: "language_model.{x}"}
      - {keep: "embed_out.weight"}
"""


class Renamed:
    """A folder of shards with an index and a receipt, or one file, before and after."""

    def __init__(self, name: str, work: Path, plain: Path, *options: str) -> None:
        self.name = name
        self.work = work
        self.log = work / "log"
        self.pack = work / "pack.yaml"
        self.pack.write_text(PACK)
        assert command(["convert", plain, work / "source", *options]) == 0
        clean = self._place("clean")
        self.old = files(clean)
        assert command(self._command(clean)) == 0
        self.new = files(clean)
        code, self.calls = run(self._command(self._place("counted")), "", -1, self.log)
        assert code == 0, self.log.read_text()

    def _place(self, name: str) -> Path:
        place = self.work / name
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(self.work / "source", place)
        return place

    def _command(self, place: Path) -> list[object]:
        return ["convert", place, "--in-place", "-r", self.pack]

    def faults(self, fault: str, every: int) -> Iterator[str]:
        """What did not hold, one line each boundary: "" where all did."""
        for at, call in enumerate(self.calls):
            if at % every == 0 and (fault not in ("torn", "short") or call in WRITING):
                problem = self._strike(fault, at)
                yield f"{self.name}: {fault} at {call} {at}: {problem}" if problem else ""

    def _strike(self, fault: str, at: int) -> str:
        place = self._place("struck")
        code, _ = run(self._command(place), fault, at, self.log)
        said = self.log.read_text()
        if "Traceback" in said or code not in {"kill": (-9,), "torn": (-9,), "short": (0,)}.get(fault, (2,)):
            return f"exit code {code}: {said}"
        copy = self.work / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(place, copy)
        return self._between(place) or self._finished(place) or self._undone(copy)

    def _between(self, place: Path) -> str:
        """A file that readers open is wholly old or wholly new; so is the checkpoint, or it does not open."""
        found = files(place)
        for name, data in found.items():
            if (
                name.endswith(".safetensors")
                and data[7] == 0
                and data not in (self.old[name], self.new[name])
            ):
                return f"{name} opens, and is neither old nor new"
        try:
            keys = api.catalog(place).entries.keys()
        except RemapError:
            return ""
        wanted = self.old if any(k.startswith("gpt_neox") for k in keys) else self.new
        return "" if found == wanted else "the checkpoint opens, and is neither old nor new"

    def _finished(self, place: Path) -> str:
        code, _ = run([*self._command(place), "--resume"], "", -1, self.log)
        if code or files(place) != self.new:
            return f"--resume did not finish: {self.log.read_text()}"
        return self._left(place)

    def _undone(self, place: Path) -> str:
        """Without an undo file there is nothing to undo, and everything is old."""
        begun = any(place.glob("*.undo.json"))
        code, _ = run(["convert", place, "--in-place", "--undo"], "", -1, self.log)
        if code != (0 if begun else 2) or files(place) != self.old:
            return f"--undo did not take it back: {self.log.read_text()}"
        return self._left(place) if begun else ""

    def _left(self, place: Path) -> str:
        left = sorted(p.name for p in place.iterdir() if p.name.endswith(".part"))
        return f"left behind: {left}" if left else ""


def files(place: Path) -> Files:
    """All of the checkpoint."""
    return {p.name: p.read_bytes() for p in place.iterdir() if not p.name.endswith((".undo.json", ".part"))}
