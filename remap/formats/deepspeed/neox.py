"""What GPT-NeoX says of a model beside its weights: ``args`` in rank files, ``configs/*.yml`` in the step.

In: a step folder. Out: one mapping, underscores in its names, for parameters that look into a configuration.
A saved configuration lists what differs from GPT-NeoX's defaults, so these are filled in where there is one.
Source: EleutherAI/gpt-neox megatron/checkpointing.py (``save_ds_checkpoint``), megatron/neox_arguments.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import yaml

from remap.documents import read_document
from remap.errors import InputError
from remap.formats.base import Literal, OutFile
from remap.formats.torch.state import TorchFile

CONFIGS = "configs"
LIMIT = 1 << 20
"""Bytes of a configuration."""
_DEFAULTS = {"gpt_j_residual": False}
_DEGREE = r"""(?m)^(\s*)(["']?)({})\2(\s*:\s*)\d+"""


def neox_config(folder: Path, rank: TorchFile | None) -> dict[str, object]:
    """What the step folder and one of its rank files say; {} where it is no run of GPT-NeoX."""
    found: dict[str, object] = {}
    if rank is not None and "args" in rank.keys:
        args = rank.plain("args")
        found |= _named(args) if isinstance(args, Mapping) else {}
    saved: dict[str, object] = {}
    for path in config_files(folder):
        try:
            document = yaml.safe_load(read_document(path, LIMIT))
        except (yaml.YAMLError, ValueError, RecursionError, InputError):
            continue  # the run's own affair; what it would have said is asked for where it is needed
        saved |= _named(document) if isinstance(document, Mapping) else {}
    return found | ({**_DEFAULTS, **saved} if saved else {})


def _named(mapping: Mapping[object, object]) -> dict[str, object]:
    return {str(k).replace("-", "_"): v for k, v in mapping.items()}


def config_files(folder: Path) -> list[Path]:
    """The configuration that GPT-NeoX saves with a step."""
    return sorted(p for p in (folder / CONFIGS).glob("*.yml") if p.is_file())


def carried_configs(folder: Path, step: str, tp: int, pp: int) -> list[OutFile]:
    """Those files for an output in the folder ``step``; the degrees in them are those of the output."""
    out = []
    for path in config_files(folder):
        text = path.read_bytes().decode(errors="surrogateescape")
        for name, value in (("model[-_]parallel[-_]size", tp), ("pipe[-_]parallel[-_]size", pp)):
            text = re.sub(_DEGREE.format(name), rf"\1\2\3\2\g<4>{value}", text)
        data = text.encode(errors="surrogateescape")
        out.append(OutFile(f"{step}/{CONFIGS}/{path.name}", (Literal(data),)))
    return out


def args_of(tp: int, padded: int | None) -> dict[tuple[str, ...], object]:
    """What ``args`` says of an output: GPT-NeoX compares it with its configuration when it loads."""
    args: dict[tuple[str, ...], object] = {("args", "model_parallel_size"): tp}
    if padded is not None:
        args["args", "padded_vocab_size"] = padded
    return args
