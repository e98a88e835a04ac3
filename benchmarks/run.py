"""Every benchmark, one after the other, and the page that shows them.

    python benchmarks/run.py [--gb 2 8] [--rounds 3] [--folder DIR] [--only NAME...] [--page]

Results with machine and versions go to ``docs/benchmarks.json``, from which ``docs/benchmarks.md`` and its
plots are made (``--page`` makes them anew and measures nothing). It takes a quarter of an hour and 30 GB of
disk; what else the machine does in that time is in the figures.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from harness import RESULTS
from page import write_page

HERE = Path(__file__).parent
DOCS = HERE.parent / "docs"
PACKAGES = ("remap", "numpy", "safetensors", "torch", "transformers", "mergekit", "xxhash")


def scripts(gb: list[str], rounds: str, folder: list[str]) -> dict[str, list[str]]:
    """Script -> its arguments, in the order of the page."""
    return {
        "rename": ["--gb", *gb, "--rounds", rounds, *folder],
        "arithmetic": ["--gb", gb[0], "--rounds", rounds, *folder],
        "reshard": ["--gb", gb[0], "--rounds", "2", *folder],
        "parallel": ["--gb", gb[0], "--rounds", "2", *folder],
        "others": ["--gb", "1", "--rounds", "2", *folder],
        "sharing": ["--gb", gb[0], "--rounds", rounds, *folder],
        "startup": [],
        "plan": ["--rounds", "1"],
        "audit": ["--rounds", "2"],
        "scale": folder,
    }


def machine(folder: Path) -> dict[str, object]:
    """What the figures were measured on."""
    info = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    models = [line.split(":", 1)[1].strip() for line in info.splitlines() if line.startswith("model name")]
    disk = subprocess.run(("stat", "-f", "-c", "%T", folder), capture_output=True, text=True)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "processor": models[0] if models else platform.processor(),
        "cores": os.cpu_count(),
        "memory GB": round(memory / 1e9),
        "file system": disk.stdout.strip(),
        "system": f"{platform.system()} {platform.release()}",
        "Python": platform.python_version(),
        **{name: found for name in PACKAGES if (found := _version(name))},
    }


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--gb", nargs="+", default=["2", "8"], help="sizes of the checkpoints")
    parser.add_argument("--rounds", default="3")
    parser.add_argument("--folder", type=Path, help="where to put the files; they are removed")
    parser.add_argument("--only", nargs="+", help="benchmarks to run; the others' results are kept")
    parser.add_argument("--page", action="store_true", help="only make the page anew")
    args = parser.parse_args()
    results = DOCS / "benchmarks.json"
    if not args.page:
        folder = ["--folder", str(args.folder)] if args.folder else []
        todo = scripts(args.gb, args.rounds, folder)
        wanted = {name: given for name, given in todo.items() if not args.only or name in args.only}
        old = json.loads(results.read_text())["tables"] if args.only and results.exists() else []
        found = [t for t in old if t["script"] not in wanted] + measured(wanted)
        found.sort(key=lambda t: list(todo).index(t["script"]))
        where = args.folder or Path(tempfile.gettempdir())
        document = {"version": 1, "machine": machine(where), "tables": found}
        results.write_text(json.dumps(document, indent=1) + "\n")
    write_page(json.loads(results.read_text()), DOCS)


def measured(wanted: dict[str, list[str]]) -> list[dict[str, object]]:
    """The tables of these scripts; one that fails is named, and the others are still run."""
    with tempfile.TemporaryDirectory() as scratch:
        records = Path(scratch) / "records"
        records.touch()
        for name, given in wanted.items():
            command = (sys.executable, HERE / f"{name}.py", *given)
            if subprocess.run(command, env={**os.environ, RESULTS: str(records)}).returncode:
                print(f"\n{name}: failed", file=sys.stderr)
        return [json.loads(line) for line in records.read_text().splitlines()]


if __name__ == "__main__":
    main()
