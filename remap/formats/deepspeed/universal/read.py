"""Opens a universal checkpoint: headers of every weight's files, moments only when they are asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from math import prod
from pathlib import Path

from remap.errors import Damaged, InputError
from remap.formats.companions import companions, read_config
from remap.formats.deepspeed.likeness import MODULE_ONLY, OF_ONE_RANK
from remap.formats.deepspeed.universal.folder import (
    LATEST_UNIVERSAL,
    PARAM,
    STATE_FILE,
    WEIGHT,
    ZERO_FOLDER,
    model_files,
    weight_folders,
)
from remap.formats.deepspeed.zero.cut import Shapes
from remap.formats.deepspeed.zero.overlay import OPTIMIZER
from remap.formats.deepspeed.zero.run import read_shapes
from remap.formats.torch import file as torch_file
from remap.formats.torch.state import TorchFile
from remap.pickles.graph import Opaque, key_of, mapping_pairs
from remap.pickles.nodes import Value
from remap.types import Catalog, Entry, OptimizerState, TensorSpec

STEP = "step"
NAMES = "remap_keys"
"""In ``optimizer_state.pt``: name of a weight's folder -> its key, where they differ. DeepSpeed does not
look at it."""


@dataclass(frozen=True)
class Universal:
    """A step folder.

    weights  key -> the weight's folder
    models   the files beside ``zero``, read
    state    ``optimizer_state.pt``, read; None where there is none
    """

    folder: Path
    weights: Mapping[str, Path]
    models: Sequence[TorchFile]
    state: TorchFile | None

    @cached_property
    def shapes(self) -> list[Shapes]:
        """``param_shapes`` of all model files, by number: shapes of flat tensors, members of groups."""
        found: list[dict[str, tuple[int, ...]]] = []
        for model in self.models:
            for number, names in enumerate(read_shapes(model)):
                found += [{}] * (number + 1 - len(found))
                found[number] = {**found[number], **names}
        return list(found)

    def around(self, key: str) -> Mapping[str, Value]:
        """What a weight's file says beside the tensor: how ranks divide it. {} where it says nothing."""
        read = torch_file.read(self.weights[key] / WEIGHT, state_dict=False)
        pairs = ((key_of(k), v) for k, v in mapping_pairs(read.node_at()) or ())
        return {k: v for k, v in pairs if isinstance(k, str) and k != PARAM}

    def tensor(self, key: str, file: Path) -> Entry:
        """The tensor in a file, a weight or a moment, as ``key``. Flat ones get the weight's shape."""
        read = torch_file.read(file, state_dict=False)
        found = read.tensor_at(PARAM) if PARAM in read.keys else read.tensor_at()
        if found is None:
            raise Damaged("there is no tensor in it", where=file)
        shapes = [names[file.parent.name] for names in self.shapes if file.parent.name in names]
        if PARAM not in read.keys and shapes and found.spec.shape == (prod(shapes[0]),):
            return Entry(key, TensorSpec(found.spec.dtype, shapes[0]), found.location)
        return Entry(key, found.spec, found.location)


def open_folder(path: Path, name: str) -> Catalog:
    """The catalog of a step folder, for the format ``name``. Raises InputError, Damaged."""
    models = [torch_file.read(f, state_dict=False) for f in model_files(path)]
    state = _state(path)
    listed = state.plain(NAMES) if state and NAMES in state.keys else None
    called: Mapping[str, str] = listed if isinstance(listed, dict) else {}
    weights = {called.get(f.name, f.name): f for f in weight_folders(path)}
    native = Universal(path, weights, models, state)
    reads = [*models, *([state] if state else [])]
    return Catalog(
        format=name,
        root=path,
        files=tuple(
            sorted([*(r.path for r in reads), *(p for f in weights.values() for p in f.glob("*.pt"))])
        ),
        entries={k: native.tensor(k, f / WEIGHT) for k, f in weights.items()},
        config=read_config(path.parent),
        opaque=tuple(sorted({c for r in reads for c in r.opaque})),
        extras=tuple(dict.fromkeys([*_extras(models), OPTIMIZER])),
        companions=companions(path.parent),
        warnings=tuple(_warnings(path, models, state)),
        peek=models[0].peek if models else None,
        native=native,
        optimizer=partial(read_optimizer, native) if state else None,
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


def read_optimizer(native: Universal) -> OptimizerState | None:
    """The optimizer's state, weight by weight; None where no weight has any. Raises InputError, Damaged."""
    assert native.state is not None
    tensors: dict[str, dict[str, Entry]] = {}
    values: dict[str, dict[str, object]] = {}
    for key, folder in native.weights.items():
        for file in sorted(folder.glob("*.pt")):
            slot = file.stem
            if file.name == WEIGHT:
                continue
            if slot == STEP:
                step = torch_file.read(file, state_dict=False)
                found = step.tensor_at()
                if found is None:
                    values.setdefault(key, {})[slot] = step.plain()
                    continue
                tensors.setdefault(key, {})[slot] = Entry(f"{key}.{slot}", found.spec, found.location)
            else:
                tensors.setdefault(key, {})[slot] = native.tensor(f"{key}.{slot}", file)
    if not tensors:
        return None
    _add_step(native.state, tensors, values)
    rest = {k: v for k, v in _plain(native.state).items() if not isinstance(v, (Opaque, dict, list))}
    return OptimizerState(OPTIMIZER, tensors, values, _groups(native, tensors), rest)


def _add_step(
    state: TorchFile, tensors: Mapping[str, dict[str, Entry]], values: dict[str, dict[str, object]]
) -> None:
    """Made of ZeRO-3, weights have no step of their own: there is one, of the first flat tensor."""
    place = ("optimizer_state_dict", "state", 0, STEP)
    for key, slots in tensors.items():
        if STEP in slots or STEP in values.get(key, {}):
            continue
        try:
            value = state.plain(*place)
        except KeyError:
            return
        found = state.tensor_at(*place)
        if found is None:
            values.setdefault(key, {})[STEP] = value
        else:
            slots[STEP] = Entry(f"{key}.{STEP}", found.spec, found.location)


def _plain(state: TorchFile) -> Mapping[str, object]:
    value = state.plain()
    return value if isinstance(value, dict) else {}


def _groups(native: Universal, trained: Mapping[str, object]) -> list[dict[str, object]]:
    """Settings of every parameter group, with keys: listed by name (remap), or by number in param_shapes."""
    assert native.state is not None
    held = _plain(native.state)
    groups = held.get("param_groups")
    if not isinstance(groups, list) or not all(isinstance(g, dict) for g in groups):
        raise Damaged("holds no param_groups", where=native.state.path)
    keys = {folder.name: key for key, folder in native.weights.items()}
    out: list[dict[str, object]] = []
    for number, group in enumerate(groups):
        params = group.get("params")
        members = params if isinstance(params, list) else [number]
        out.append({**group, "params": [keys[n] for p in members for n in _members(native, p) if n in keys]})
    grouped = {k for g in out for k in g["params"]}  # type: ignore[attr-defined]
    lost = [k for k in trained if k not in grouped]
    if lost and len(out) == 1:
        out[0]["params"] = list(trained)
    elif lost:
        raise InputError(
            "which parameter group these weights are in is said nowhere",
            where=native.folder,
            problems=lost,
            remedy="fetch the model files (mp_rank_XX_model_states.pt) of the same step",
        )
    return out


def _members(native: Universal, param: object) -> list[str]:
    """The weights that an item of ``params`` stands for."""
    if isinstance(param, str):
        return [param]
    return list(native.shapes[param]) if type(param) is int and param < len(native.shapes) else []
