"""The names of DeepSpeed's files, parsed: numbers are numbers, ``layer_10`` is not ``layer_100``.

Source: DeepSpeed ``runtime/pipe/module.py`` (``ckpt_layer_path``), ``runtime/engine.py``
(``_get_ckpt_name``, ``_get_zero_ckpt_name``).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from remap.errors import Damaged, UsageError

_LAYER = re.compile(r"layer_(\d+)(?:-model_(\d+))?-model_states\.pt")
_RANK = re.compile(r"mp_rank_(\d+)_model_states\.pt")
_OPTIMIZER = re.compile(r"(?:(?:bf16|fp16)_)?zero_pp_rank_(\d+)_mp_rank_(\d+)_?optim_states\.pt")
_PARTITION = re.compile(r"zero_pp_rank_(\d+)_mp_rank_(\d+)_model_states\.pt")

LATEST = "latest"
"""The file that names the newest step folder, without a line break."""


@dataclass(frozen=True, slots=True)
class LayerFile:
    """``layer_{index}-model_{rank}-model_states.pt``; ``rank`` is None where the topology has no
    tensor-parallel axis (``layer_{index}-model_states.pt``)."""

    index: int
    rank: int | None


def layer_of(name: str) -> LayerFile | None:
    """What a file name says, None where it is no layer file."""
    found = _LAYER.fullmatch(name)
    return LayerFile(int(found[1]), int(found[2]) if found[2] else None) if found else None


def rank_of(name: str) -> int | None:
    """The number in ``mp_rank_XX_model_states.pt``, None for another name."""
    found = _RANK.fullmatch(name)
    return int(found[1]) if found else None


def step_name(tag: str | None, default: str) -> str:
    """The name of the step folder to write. Raises UsageError for what is no name of a folder."""
    name = default if tag is None else tag
    if not name or name in (".", "..", LATEST) or PurePosixPath(name).name != name or "\0" in name:
        raise UsageError(f"--tag {name!r} is no name for a folder", remedy="give one name, as global_step0")
    return name


def layer_files(folder: Path) -> list[Path]:
    """The layer files of a step folder, by layer and rank as numbers."""
    found = [(layer, p) for p in folder.iterdir() if (layer := layer_of(p.name))]
    return [p for _, p in sorted(found, key=lambda f: (f[0].index, f[0].rank or 0, f[1].name))]


def rank_files(folder: Path) -> list[Path]:
    """The ``mp_rank_XX`` files of a step folder, by number."""
    found = [(rank, p) for p in folder.iterdir() if (rank := rank_of(p.name)) is not None]
    return [p for _, p in sorted(found)]


@dataclass(frozen=True, slots=True, order=True)
class ZeroFile:
    """A file of ZeRO's: ``zero_pp_rank_{shard}_mp_rank_{rank}_...``. The first number is the data-parallel
    rank, whatever its name; ``rank`` is that of ``mp_rank_XX``."""

    rank: int
    shard: int
    path: Path

    @property
    def name(self) -> str:
        """The file's name."""
        return self.path.name


def optimizer_files(folder: Path) -> list[ZeroFile]:
    """The ZeRO optimizer files of a step folder, by their numbers."""
    return _zero_files(folder, _OPTIMIZER)


def partition_files(folder: Path) -> list[ZeroFile]:
    """The model files of ZeRO-3, one a rank, by their numbers."""
    return _zero_files(folder, _PARTITION)


def _zero_files(folder: Path, name: re.Pattern[str]) -> list[ZeroFile]:
    found = [(n, p) for p in folder.iterdir() if (n := name.fullmatch(p.name))]
    return sorted(ZeroFile(int(n[2]), int(n[1]), p) for n, p in found)


def step_folders(path: Path) -> list[Path]:
    """The step folders that ``path`` stands for: a file in one, one itself, what ``latest`` names,
    or else every subfolder that has model files. Raises Damaged where ``latest`` names none."""
    if path.is_file():
        if path.name == LATEST:
            return step_folders(path.parent)
        return [path.parent] if _is_of_a_step(path.name) else []
    if not path.is_dir():
        return []
    if has_model(path):
        return [path]
    named = named_step(path / LATEST)
    if named is not None:
        return [named]
    return sorted(p for p in path.iterdir() if p.is_dir() and has_model(p))


def named_step(latest: Path) -> Path | None:
    """The step folder that ``latest`` names, beside it; None where there is no such file. Raises Damaged
    where it names none."""
    if not latest.is_file() or latest.stat().st_size >= 4096:
        return None
    tag = latest.read_text(errors="replace").strip()
    step = latest.parent / tag
    if tag in ("", "..") or Path(tag).name != tag or not step.is_dir():
        raise Damaged(
            f"names the step {tag!r}, which is no folder here",
            where=latest,
            remedy="write the name of one of the step folders into it, or point at that folder",
        )
    return step


def has_model(folder: Path) -> bool:
    """True for a step folder: it has files that hold a model, or say that it lies in layer files."""
    return bool(layer_files(folder) or rank_files(folder) or partition_files(folder))


def _is_of_a_step(name: str) -> bool:
    return bool(
        layer_of(name)
        or rank_of(name) is not None
        or _PARTITION.fullmatch(name)
        or _OPTIMIZER.fullmatch(name)
    )
