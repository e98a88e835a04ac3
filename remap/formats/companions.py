"""The small files beside a checkpoint that describe its model: configuration and tokenizer.

They are carried along, so that what comes back from a conversion is a folder that loads.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from remap.errors import Damaged
from remap.formats.base import CopiedBytes, OutFile

CONFIG = "config.json"

NAMES = (
    CONFIG,
    "generation_config.json",
    "added_tokens.json",
    "chat_template.jinja",
    "merges.txt",
    "preprocessor_config.json",
    "processor_config.json",
    "sentencepiece.bpe.model",
    "special_tokens_map.json",
    "spiece.model",
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer_config.json",
    "vocab.json",
    "vocab.txt",
)
"""What transformers' ``save_pretrained`` writes beside the weights."""


def companions(folder: Path) -> tuple[Path, ...]:
    """The companion files of ``folder``, sorted."""
    return tuple(folder / name for name in sorted(NAMES) if (folder / name).is_file())


def read_config(folder: Path) -> Mapping[str, object]:
    """The parsed ``config.json`` of ``folder``; {} where there is none. Raises Damaged."""
    path = folder / CONFIG
    if not path.is_file():
        return {}
    try:
        config = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as e:
        raise Damaged(f"not JSON: {e}", where=path, remedy="mend or remove the file") from None
    return config if isinstance(config, dict) else {}


def carried(files: tuple[Path, ...]) -> list[OutFile]:
    """Copies of companion files, for the folder of an output."""
    return [OutFile(p.name, (CopiedBytes(p, 0, p.stat().st_size),)) for p in files]
