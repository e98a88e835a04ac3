"""What a killed run leaves is no checkpoint to anyone: torch, transformers, DeepSpeed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.api import CheckpointException
from trust.killing.conversions import NEOX, sources

TESTS = Path(__file__).parents[2]
KILL = """
import sys
sys.path.insert(0, sys.argv[1])
from trust.killing.faults import Counted, command
counted = Counted()
counted.fault, name = "kill", sys.argv[2]
real = counted.meet
def meet(call, *rest, **more):
    if call == name:
        counted.at = len(counted.calls)
    return real(call, *rest, **more)
counted.meet = meet
command(sys.argv[3:])
"""
"""Killed at the first call of a name: ``rename`` is the first file that gets its name."""


def killed(at: str, *arguments: object) -> None:
    command = [sys.executable, "-c", KILL, str(TESTS), at, *map(str, arguments)]
    assert subprocess.run(command, capture_output=True, check=False).returncode == -9


def by_transformers(path: Path) -> object:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(path)


def by_deepspeed(path: Path) -> object:
    from deepspeed.utils.zero_to_fp32 import get_fp32_state_dict_from_zero_checkpoint

    return get_fp32_state_dict_from_zero_checkpoint(path)


def by_dcp(path: Path) -> object:
    return dcp.load({"gpt_neox.embed_in.weight": torch.empty(16, 8)}, checkpoint_id=path, no_dist=True)


REFUSALS = (OSError, ValueError, RuntimeError, AssertionError, CheckpointException)

LOADERS: dict[str, tuple[Sequence[str], Callable[[Path], object]]] = {
    "safetensors": (("--to", "safetensors"), by_transformers),
    "torch": (("--to", "torch", "--shard-size", "1KB"), by_transformers),
    "dcp": (("--to", "dcp", "--ranks", "2"), by_dcp),
    "deepspeed": ((*NEOX, "--to", "deepspeed", "--tp", "2"), by_deepspeed),
}


@pytest.mark.parametrize("name", LOADERS)
@pytest.mark.parametrize("at", ["pwrite", "rename"])
def test_it_is_no_checkpoint(tmp_path: Path, name: str, at: str) -> None:
    options, load = LOADERS[name]
    place = tmp_path / "place"
    place.mkdir()
    killed(at, "convert", sources(tmp_path)["neox"], place / "out", *options, "--jobs", "1")
    assert [p.name for p in place.iterdir()] == [".out.remap"]
    for path in (place / "out", place):
        with pytest.raises(REFUSALS):
            load(path)
