"""The small files beside a checkpoint that describe its model: configuration and tokenizer.

They are carried along, so that what comes back from a conversion is a folder that loads.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from remap.documents import parse_json, read_document
from remap.dtypes import DType
from remap.errors import Hostile
from remap.files import look_ahead
from remap.formats.base import CopiedBytes, Literal, OutFile

CONFIG = "config.json"
BLOBS = "blobs"
"""Where the cache of huggingface_hub keeps what ``snapshots/REVISION`` links to."""

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
    paths = [folder / name for name in sorted(NAMES)]
    look_ahead(paths)
    return tuple(p for p in paths if p.is_file())


def read_config(folder: Path) -> Mapping[str, object]:
    """The parsed ``config.json`` of ``folder``; {} where there is none. Raises Damaged."""
    path = folder / CONFIG
    if not path.is_file():
        return {}
    config = parse_json(read_document(path), "JSON", path)
    return config if isinstance(config, dict) else {}


def carried(files: tuple[Path, ...], cast: DType | None = None) -> list[OutFile]:
    """Copies of companion files, for the folder of an output. Where weights were ``cast``, ``config.json``
    tells the new type.

    Raises Hostile for a link that leaves the folder, but for those of Hugging Face's cache: what came with a
    download may point at anything that its user can read.
    """
    away = [f"{p.name}: a link to {p.resolve()}" for p in files if _leaves(p)]
    if away:
        raise Hostile(
            "files beside the weights are links to elsewhere, and are not copied into an output",
            where=files[0].parent,
            problems=away,
            remedy="if they are wanted, put copies in their place; else remove them",
        )
    return [_carried(p, cast) for p in files]


def described(config: Mapping[str, object]) -> OutFile:
    """A ``config.json``."""
    text = json.dumps(config, indent=2, ensure_ascii=False)
    return OutFile(CONFIG, (Literal(f"{text}\n".encode()),))


def _leaves(path: Path) -> bool:
    if not path.is_symlink():
        return False
    real, folder = path.resolve(), path.parent.resolve()
    return not any(real.is_relative_to(f) for f in (folder, folder.parent.parent / BLOBS))


def _carried(path: Path, cast: DType | None) -> OutFile:
    if path.name == CONFIG and cast is not None:
        config = dict(read_config(path.parent))
        said = [k for k in ("dtype", "torch_dtype") if k in config]
        if said:
            return described(config | dict.fromkeys(said, cast.name))
    return OutFile(path.name, (CopiedBytes(path, 0, path.stat().st_size),))
