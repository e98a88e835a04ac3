"""The names of Megatron-LM's folders, parsed. Source: NVIDIA/Megatron-LM megatron/training/checkpointing.py
(``get_checkpoint_name``, ``get_checkpoint_tracker_filename``).

    DIR/latest_checkpointed_iteration.txt          1000, or release
    DIR/iter_0001000/mp_rank_00/model_optim_rng.pt           one stage
    DIR/iter_0001000/mp_rank_00_001/model_optim_rng.pt       rank 0 of stage 1
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from remap.errors import Damaged, InputError

TRACKER = "latest_checkpointed_iteration.txt"
FILE = "model_optim_rng.pt"
RELEASE = "release"
_STEP = re.compile(r"iter_(\d{7,})|release")
_RANK = re.compile(r"mp_rank_(\d{2,})(?:_(\d{3,}))?(_\d{3,})?")


@dataclass(frozen=True, slots=True, order=True)
class RankFile:
    """The file of one tensor-parallel ``rank`` of one ``stage``."""

    stage: int
    rank: int
    path: Path


def rank_folder(rank: int, stage: int, stages: int) -> str:
    """What the folder of a rank is called."""
    return f"mp_rank_{rank:02d}" + (f"_{stage:03d}" if stages > 1 else "")


def rank_files(step: Path) -> list[RankFile]:
    """The files of a step, by stage and rank. Raises InputError for experts on ranks of their own."""
    found = [(n, p) for p in step.iterdir() if (n := _RANK.fullmatch(p.name)) and (p / FILE).is_file()]
    experts = [p.name for n, p in found if n[3]]
    if experts:
        raise InputError(
            "experts lie on ranks of their own, which are not read",
            where=step,
            problems=experts,
            remedy="save it with --expert-model-parallel-size 1, or as torch_dist",
        )
    return sorted(RankFile(int(n[2] or 0), int(n[1]), p / FILE) for n, p in found)


def is_step(folder: Path) -> bool:
    """True for a folder of rank folders."""
    return folder.is_dir() and any(_RANK.fullmatch(p.name) and (p / FILE).is_file() for p in folder.iterdir())


def steps(path: Path) -> list[Path]:
    """The steps that ``path`` stands for: a file or folder of one, one itself, what the tracker names, or all
    of a folder. Raises Damaged where the tracker names none."""
    if path.name == FILE and path.is_file() and _RANK.fullmatch(path.parent.name):
        return [path.parent.parent]
    if path.name == TRACKER and path.is_file():
        return steps(path.parent)
    if not path.is_dir():
        return []
    if is_step(path):
        return [path]
    if _RANK.fullmatch(path.name) and (path / FILE).is_file():
        return [path.parent]
    tracker = path / TRACKER
    if tracker.is_file() and tracker.stat().st_size < 100:
        said = tracker.read_text(errors="replace").strip()
        number = f"iter_{int(said):07d}" if said.isascii() and said.isdigit() else ""
        step = path / (RELEASE if said == RELEASE else number)
        if step == path or not is_step(step):
            raise Damaged(
                f"names the iteration {said!r}, which is not here",
                where=tracker,
                remedy="write the number of one that is here, or point at its folder",
            )
        return [step]
    return sorted(p for p in path.iterdir() if _STEP.fullmatch(p.name) and is_step(p))


def tracker_text(step: str) -> str:
    """What the tracker says of a step's folder."""
    return RELEASE if step == RELEASE else str(int(step.removeprefix("iter_")))
