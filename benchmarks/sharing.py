"""A rename on a file system whose files can share blocks: what it takes, and what the disk loses.

    python benchmarks/sharing.py [--gb 2] [--rounds 3] [--folder DIR]

A file with an XFS in it is mounted, which takes root, loop devices and mkfs.xfs. Where they are missing, the
table says so. Every tensor is still read, for its digest.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from harness import REMAP, arguments, measure, report
from rename import made

TITLE = "Rename on XFS, blocks shared"


class Missing(Exception):
    """Why no file system can be mounted."""


@contextmanager
def mounted(folder: Path | None, gigabytes: float) -> Iterator[Path]:
    """An XFS of that size, in a file in ``folder``. Raises Missing."""
    if os.geteuid() or not shutil.which("mkfs.xfs"):
        raise Missing("needs root and mkfs.xfs")
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        image, place = Path(scratch) / "image", Path(scratch) / "mounted"
        place.mkdir()
        with image.open("wb") as f:
            f.truncate(int(gigabytes * 1e9))
        subprocess.run(("mkfs.xfs", "-q", "-m", "reflink=1", image), check=True)
        if subprocess.run(("mount", "-o", "loop", image, place), capture_output=True).returncode:
            raise Missing("no loop device can be mounted here")
        try:
            yield place
        finally:
            subprocess.run(("umount", place), check=True)


def main() -> None:
    args = arguments(__doc__, gb=2)
    try:
        with mounted(args.folder, 4 * args.gb + 1) as place:
            share(place, args.gb, args.rounds)
    except Missing as why:
        report(TITLE, {}, "cp", absent={"remap": str(why)})


def share(place: Path, gigabytes: float, rounds: int) -> None:
    """Measure in a file system that shares."""
    made(place, gigabytes)
    source, out = place / "model.safetensors", place / "out"
    target = str(out / source.name)
    remap = (str(REMAP), "convert", str(source), target, "-r", "magma/from-hf")
    commands = {
        "cp, blocks copied": ("cp", "--reflink=never", str(source), target),
        "cp, blocks shared": ("cp", "--reflink=always", str(source), target),
        "remap": remap,
    }
    figures = measure(commands, out, rounds)
    out.mkdir()
    os.sync()
    free = shutil.disk_usage(place).free
    subprocess.run(remap, check=True, capture_output=True)
    os.sync()
    taken = (free - shutil.disk_usage(place).free) / 1e6
    size = source.stat().st_size / 1e9
    report(f"{TITLE}: {size:.1f} GB, the output takes {taken:.1f} MB", figures, "cp, blocks copied")


if __name__ == "__main__":
    main()
