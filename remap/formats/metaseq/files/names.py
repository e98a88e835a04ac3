"""The names of metaseq's files, parsed, and the files that belong together.

    checkpoint_last-model_part-1-shard10.pt    part 1 of the model, shard 10 of its flat tensors
    reshard-model_part-1.pt                    part 1, not sharded
    checkpoint_last-shard10.pt                 fairseq and early metaseq: no parts
    checkpoint_1_100-rank-3-shard3.pt          the experts of rank 3
    reshard.pt                                 all in one

Numbers are numbers: ``shard10`` comes after ``shard2``. Files belong together that lie in one folder and
share everything in their names but part and shard; symlinks are taken by the name that they have, not by
that of their target (``checkpoint_last-...`` points at ``checkpoint_100-...``), and one that points at
nothing is no file. A file that is still being
copied begins with ``_``. Source: metaseq ``checkpoint_utils.py``, ``trainer.py`` (``checkpoint_suffix``),
``cli/train.py`` (``_checkpoint-``), ``distributed/stitch_fsdp_ckpt.py`` (``rank-``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from remap.errors import Damaged, InputError
from remap.formats.absent import absent

_NAME = re.compile(
    r"(?P<stem>.*?)(?:-rank-(?P<expert>\d+))?(?:-model_part-(?P<part>\d+))?(?:-shard(?P<shard>\d+))?\.pt"
)


@dataclass(frozen=True, slots=True)
class FileName:
    """A name taken apart; None for what it does not say."""

    stem: str
    expert: int | None = None
    part: int | None = None
    shard: int | None = None

    @property
    def numbered(self) -> bool:
        """True where the name says that the file is one of several."""
        return self.part is not None or self.shard is not None or self.expert is not None

    @property
    def kind(self) -> tuple[str, int | None, bool, bool]:
        """What files of one checkpoint have in common."""
        return self.stem, self.expert, self.part is not None, self.shard is not None

    def numbers(self, part: int, shard: int) -> FileName:
        """The name of another file of the checkpoint; numbers that this name lacks are left out."""
        return replace(
            self,
            part=None if self.part is None else part,
            shard=None if self.shard is None else shard,
        )

    def __str__(self) -> str:
        rank = "" if self.expert is None else f"-rank-{self.expert}"
        part = "" if self.part is None else f"-model_part-{self.part}"
        shard = "" if self.shard is None else f"-shard{self.shard}"
        return f"{self.stem}{rank}{part}{shard}.pt"


def parse(name: str) -> FileName | None:
    """What a file's name says, None where it can't be one of metaseq's."""
    found = _NAME.fullmatch(name)
    if found is None or name.startswith(("_", ".")):
        return None
    numbers = (int(found[g]) if found[g] else None for g in ("expert", "part", "shard"))
    return FileName(found["stem"], *numbers)


@dataclass(frozen=True)
class Family:
    """The files of one checkpoint: ``files[part, shard]``, 0 where a name has no number."""

    name: FileName
    files: Mapping[tuple[int, int], Path]

    @property
    def parts(self) -> int:
        """Number of model parts, as far as files are there."""
        return 1 + max(part for part, _ in self.files)

    @property
    def shards(self) -> int:
        """Number of shards of a part, as far as files are there."""
        return 1 + max(shard for _, shard in self.files)

    @property
    def first(self) -> Path:
        """The file with the lowest numbers, which stands for the whole."""
        return self.files[min(self.files)]


def family(path: Path) -> Family:
    """The checkpoint that ``path`` is a file of. Raises InputError for a file that is still being copied,
    Damaged where one number is there twice."""
    if path.name.startswith("_") and parse(path.name.lstrip("_")):
        raise InputError(
            "the name of a file that is still being copied, or whose copy was cut off",
            where=path,
            remedy=f"wait until it is renamed to {path.name.lstrip('_')}, or fetch it again",
        )
    name = parse(path.name)
    assert name is not None
    if not name.numbered:
        return Family(name, {(0, 0): path})
    files: dict[tuple[int, int], Path] = {}
    doubled: list[str] = []
    for other in sorted(path.parent.iterdir()):
        found = parse(other.name)
        if found is None or found.kind != name.kind or not other.is_file():
            continue
        place = (found.part or 0, 0 if name.expert is not None else found.shard or 0)
        if place in files:
            doubled.append(f"{files[place].name} and {other.name}")
        files.setdefault(place, other)
    if doubled:
        raise Damaged(
            "two files say that they are the same shard",
            where=path.parent,
            problems=doubled,
            remedy="remove those that do not belong to this checkpoint",
        )
    return Family(name, dict(sorted(files.items())))


def leftovers(path: Path) -> list[Path]:
    """Files of the checkpoint of ``path`` whose copy was not finished (``_checkpoint-...``)."""
    name = parse(path.name)
    if name is None:
        return []
    found = ((p, parse(p.name.lstrip("_"))) for p in path.parent.iterdir() if p.name.startswith("_"))
    return sorted(p for p, n in found if n is not None and n.kind == name.kind)


def check_complete(files: Family, parts: int, shards: int) -> None:
    """Raise Damaged, naming files that are not there of ``parts`` x ``shards``."""
    number, missing = absent([part * shards + shard for part, shard in files.files], parts * shards)
    if not number:
        return
    copying = [p.name for p in leftovers(files.first)]
    last = files.files[max(files.files, key=lambda place: max(place))]
    raise Damaged(
        f"{number} of {parts * shards} files are missing",
        where=files.first.parent,
        problems=[_lacking(files, files.name.numbers(*divmod(n, shards))) for n in missing],
        remedy="fetch the missing files into the same folder"
        + (f"; {', '.join(copying[:4])} is a copy that was not finished" if copying else "")
        + (f"; or move {last.name} away, if its number is no shard's" if number > len(files.files) else ""),
    )


def _lacking(files: Family, name: FileName) -> str:
    path = files.first.with_name(str(name))
    return f"{name}: a link that points at nothing" if path.is_symlink() else str(name)
