"""A Hugging Face folder that has only a ``config.json`` as the target of an audit."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import transformers

from remap.audits.target import Target
from remap.errors import Hostile, UsageError
from remap.integrations.torch_model import built, target_of

_COUNT = re.compile(r"layer|block|expert|depth")
MOST = 10_000
"""Layers, blocks or experts."""


def open_folder(text: str) -> Target:
    """The model that the config names, of the installed transformers, built on the meta device.

    Code in the folder is never run, and of transformers nothing but a model's class. Raises UsageError for a
    config that transformers refuses, and for an architecture that it doesn't have.
    """
    path = Path(text)
    config = built(lambda: _config(path), text, "transformers can't read its config")
    _check_counts(path, config.to_dict())
    names = [str(n) for n in config.architectures or []]
    there = (getattr(transformers, n, None) for n in names)
    found = next(
        (c for c in there if isinstance(c, type) and issubclass(c, transformers.PreTrainedModel)), None
    )
    if found is None:
        wanted = " or ".join(names) or "architecture named in it"
        raise UsageError(
            f"transformers {transformers.__version__} has no {wanted}",
            where=path,
            remedy="use a key list: remap keys path.py:function -o keys.json",
        )
    return target_of(built(lambda: found(config), text), text)


def _check_counts(path: Path, config: Mapping[Any, object]) -> None:
    """Raise Hostile for numbers of layers and experts that no model has: each takes time and memory, on the
    meta device, too."""
    numbers = [(str(k), v) for k, v in config.items() if isinstance(v, int) and v > MOST]
    large = [f"{k}: {v}" for k, v in numbers if _COUNT.search(k)]
    if large:
        raise Hostile("its model would have more modules than can be built", where=path, problems=large)
    for value in config.values():
        if isinstance(value, dict):
            _check_counts(path, value)


def _config(path: Path) -> transformers.PretrainedConfig:
    config: transformers.PretrainedConfig = transformers.AutoConfig.from_pretrained(
        path, local_files_only=True, trust_remote_code=False
    )
    return config
