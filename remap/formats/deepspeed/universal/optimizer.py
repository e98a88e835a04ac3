"""Reads the optimizer's state of a universal checkpoint, weight by weight."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from remap.errors import Damaged, InputError
from remap.formats.deepspeed.universal.folder import WEIGHT, ZERO_FOLDER
from remap.formats.deepspeed.universal.native import STEP, Universal
from remap.formats.deepspeed.zero.overlay import OPTIMIZER
from remap.formats.torch import file as torch_file
from remap.formats.torch.state import TorchFile
from remap.pickles.graph import Opaque
from remap.types import Entry, OptimizerState


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


def _groups(native: Universal, trained: Mapping[str, Mapping[str, object]]) -> list[dict[str, object]]:
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
    bare = [k for g in out for k in _bare(g["params"], trained)]
    if bare:
        raise Damaged(
            "moments are missing",
            where=native.folder,
            problems=bare,
            remedy=f"fetch all of {ZERO_FOLDER}, or leave the optimizer behind with --no-optimizer",
        )
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


def _bare(group: object, trained: Mapping[str, Mapping[str, object]]) -> Iterator[str]:
    """The weights of a group that lack a slot that another of them has."""
    assert isinstance(group, list)
    slots = {slot for key in group for slot in trained.get(key, {})}
    for key in group:
        yield from (f"{key}: {slot}" for slot in sorted(slots - trained.get(key, {}).keys()))


def _members(native: Universal, param: object) -> list[str]:
    """The weights that an item of ``params`` stands for."""
    if isinstance(param, str):
        return [param]
    return list(native.shapes[param]) if type(param) is int and param < len(native.shapes) else []
