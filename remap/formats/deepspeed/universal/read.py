"""Opens a universal checkpoint: headers of every weight's ``fp32.pt``; moments when they are asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from remap.errors import Damaged
from remap.formats.companions import companions, read_config
from remap.formats.deepspeed.likeness import MODULE_ONLY, OF_ONE_RANK
from remap.formats.deepspeed.neox import neox_config
from remap.formats.deepspeed.universal.folder import (
    LATEST_UNIVERSAL,
    STATE_FILE,
    WEIGHT,
    ZERO_FOLDER,
    model_files,
    weight_folders,
)
from remap.formats.deepspeed.universal.native import NAMES, Universal
from remap.formats.deepspeed.universal.optimizer import read_optimizer
from remap.formats.deepspeed.zero.overlay import OPTIMIZER
from remap.formats.torch import file as torch_file
from remap.formats.torch.state import TorchFile
from remap.types import Catalog


def open_folder(path: Path, name: str) -> Catalog:
    """The catalog of a step folder, for the format ``name``. Raises InputError, Damaged."""
    models = [torch_file.read(f, state_dict=False) for f in model_files(path)]
    state = _state(path)
    listed = state.plain(NAMES) if state and NAMES in state.keys else None
    called: Mapping[str, str] = listed if isinstance(listed, dict) else {}
    weights = {called.get(f.name, f.name): f for f in weight_folders(path)}
    native = Universal(path, weights, models, state)
    _check_complete(native)
    reads = [*models, *([state] if state else [])]
    return Catalog(
        format=name,
        root=path,
        files=tuple(
            sorted([*(r.path for r in reads), *(p for f in weights.values() for p in f.glob("*.pt"))])
        ),
        entries={k: native.tensor(k, f / WEIGHT) for k, f in weights.items()},
        config={**read_config(path.parent), **neox_config(path, models[0] if models else None)},
        opaque=tuple(sorted({c for r in reads for c in r.opaque})),
        extras=tuple(dict.fromkeys([*_extras(models), OPTIMIZER])),
        companions=companions(path.parent),
        warnings=tuple(_warnings(path, models, state)),
        peek=models[0].peek if models else None,
        native=native,
        optimizer=partial(read_optimizer, native) if state else None,
    )


def _check_complete(native: Universal) -> None:
    """Every weight that the model files list has a folder."""
    there = {folder.name for folder in native.weights.values()}
    missing = [n for names in native.shapes for n in names if n not in there]
    if missing:
        raise Damaged(
            "weights have no folder",
            where=native.folder,
            problems=missing,
            remedy=f"fetch all of {ZERO_FOLDER}",
        )


def _state(path: Path) -> TorchFile | None:
    file = path / ZERO_FOLDER / STATE_FILE
    return torch_file.read(file, state_dict=False) if file.is_file() else None


def _extras(models: Sequence[TorchFile]) -> list[str]:
    """What model files hold beside weights, and what is said of them."""
    return [str(k) for m in models[:1] for k in m.keys if k not in MODULE_ONLY and k not in OF_ONE_RANK]


def _warnings(path: Path, models: Sequence[TorchFile], state: TorchFile | None) -> Iterator[str]:
    if not (path.parent / LATEST_UNIVERSAL).is_file():
        yield f"no {LATEST_UNIVERSAL} beside the step folder: DeepSpeed loads nothing unless given the tag"
    if not models:
        yield "no mp_rank_XX_model_states.pt: DeepSpeed's load_checkpoint needs one"
    if state is None:
        yield f"no {ZERO_FOLDER}/{STATE_FILE}: DeepSpeed's load_checkpoint needs one"
