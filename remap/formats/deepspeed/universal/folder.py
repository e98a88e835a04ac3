"""What lies where in a universal checkpoint.

    DIR/latest_universal                        the step's name
    DIR/<step>/mp_rank_00_model_states.pt       everything but weights (ZeRO-3: zero_pp_rank_0_mp_rank_00_...)
    DIR/<step>/zero/<weight>/fp32.pt            {"param": tensor, "cat_dim": 0}; from ZeRO-3 a flat tensor
    DIR/<step>/zero/<weight>/exp_avg.pt, exp_avg_sq.pt, step.pt
    DIR/<step>/zero/optimizer_state.pt          loss scale, settings of parameter groups

Source: DeepSpeed ``checkpoint/ds_to_universal.py``, ``checkpoint/universal_checkpoint.py``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from remap.formats.deepspeed.names import named_step, partition_files, rank_files

LATEST_UNIVERSAL = "latest_universal"
ZERO_FOLDER = "zero"
WEIGHT = "fp32.pt"
STATE_FILE = "optimizer_state.pt"
PARAM = "param"


def find(path: Path) -> Sequence[Path]:
    """The step folders at ``path``: a folder, its ``latest_universal``, or any file of one."""
    if path.is_file():
        if path.name == LATEST_UNIVERSAL:
            return find(path.parent)
        return [p for p in path.parents[:3] if is_universal(p)][:1]
    if not path.is_dir():
        return []
    inside = [p for p in (path, *path.parents[:2]) if is_universal(p)]
    if inside:
        return inside[:1]
    named = named_step(path / LATEST_UNIVERSAL)
    if named is not None:
        return [named] if is_universal(named) else []
    return sorted(p for p in path.iterdir() if p.is_dir() and is_universal(p))


def is_universal(folder: Path) -> bool:
    """True for a step folder with weights in folders of their own."""
    zero = folder / ZERO_FOLDER
    return zero.is_dir() and next(zero.glob(f"*/{WEIGHT}"), None) is not None


def weight_folders(step: Path) -> list[Path]:
    """The folder of every weight, layer 2 before layer 10."""
    found = [p.parent for p in (step / ZERO_FOLDER).glob(f"*/{WEIGHT}")]
    return sorted(
        found, key=lambda p: [(int(t), "") if t.isdigit() else (-1, t) for t in re.split(r"(\d+)", p.name)]
    )


def model_files(step: Path) -> list[Path]:
    """The files that hold everything but weights, one for every ``mp_rank``."""
    return rank_files(step) or [f.path for f in partition_files(step) if f.shard == 0]
