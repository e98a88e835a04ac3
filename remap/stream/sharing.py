"""Which stretches of an output can be the very blocks of its sources, on file systems such as XFS and Btrfs.

A stretch can be shared where it lies alike in its blocks in both files; the formats align what they write
so that a rename's tensors do.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from remap.formats.base import BLOCK, OutFile
from remap.stream import disk
from remap.stream.work import stretch


class Sharing:
    """The files that can share blocks with new ones in ``folder``; for each device one block is tried."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: dict[Path, bool] = {}
        self._devices: dict[int, bool] = {}

    def __contains__(self, file: Path) -> bool:
        if file not in self._files:
            stat = file.stat()
            if stat.st_size < BLOCK:
                return False
            if stat.st_dev not in self._devices:
                self._devices[stat.st_dev] = self._try(file)
            self._files[file] = self._devices[stat.st_dev]
        return self._files[file]

    def _try(self, file: Path) -> bool:
        trial = self._folder / ".shared"
        try:
            with file.open("rb") as source, trial.open("xb") as target:
                disk.share(source.fileno(), 0, target.fileno(), 0, BLOCK)
        except OSError:
            return False
        finally:
            trial.unlink(missing_ok=True)
        return True

    def bytes_of(self, file: OutFile) -> int:
        """About how many bytes of ``file`` will be those of its sources."""
        first = next(filter(None, map(stretch, file.parts)), None)
        if first is None or first.file not in self:
            return 0
        found = offset = 0
        for part in file.parts:
            span = stretch(part)
            if span and (span.offset - offset) % BLOCK == 0 and span.file in self:
                found += span.nbytes
            offset += part.nbytes
        return found


def room(files: Iterable[OutFile], folder: Path) -> int:
    """Bytes that ``files`` will take on the disk, once they are written in ``folder``."""
    sharing = Sharing(folder)
    return sum(f.nbytes - sharing.bytes_of(f) for f in files)
