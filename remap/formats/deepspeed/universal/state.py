"""Writes ``zero/optimizer_state.pt``: what the optimizer keeps beside what it keeps of each weight.

ZeRO-1 and 2 read ``param_groups`` and ``ds_version`` in it, ZeRO-3 ``optimizer_state_dict``: both are
written. The loss scaler, an object of a DeepSpeed class, is carried along unopened. Source: DeepSpeed
``runtime/base_optimizer.py`` (``load_hp_checkpoint_state_from_checkpoint_dir``), ``runtime/zero/stage3.py``.
"""

from __future__ import annotations

from collections.abc import Mapping

from remap.formats.base import OutFile
from remap.formats.deepspeed.universal.native import NAMES, STEP, Universal
from remap.formats.deepspeed.zero.run import Run
from remap.formats.deepspeed.zero.shard import STATE
from remap.formats.follow import PARAMS, Followed
from remap.formats.torch import file as torch_file
from remap.formats.torch.writing.emit import emit
from remap.pickles.graph import key_of, mapping_pairs
from remap.pickles.nodes import Value

KEPT = ("loss_scaler", "dynamic_loss_scale", "overflow", "clip_grad", "zero_stage", "ds_version")
VERSION = "0.19.8"
"""The DeepSpeed whose files these are like, for a source that is none of DeepSpeed's."""


def state_file(name: str, state: Followed, native: object, names: Mapping[str, str]) -> OutFile:
    """The file ``name``.

    state   what follows the weights
    native  the source's own view: its state is carried along
    names   key -> name of the weight's folder
    """
    kept = _kept(native)
    groups = [{**g, PARAMS: [names[str(k)] for k in g[PARAMS]]} for g in state.groups]  # type: ignore[attr-defined]
    steps = [s[STEP] for s in (*state.tensors.values(), *state.values.values()) if STEP in s]
    content = {
        **{k: v for k, v in state.rest.items() if k in KEPT},
        "ds_version": VERSION,
        **kept,
        "param_groups": groups,
        STATE: {"state": {0: {STEP: steps[0]}} if steps else {}, "param_groups": groups},
        NAMES: {n: k for k, n in names.items() if n != k},
    }
    return emit(name, {}, content)


def _kept(native: object) -> dict[str, Value]:
    if isinstance(native, Run):
        read = torch_file.read(native.first.file.path, state_dict=False)
        node = read.node_at(STATE)
    elif isinstance(native, Universal) and native.state is not None:
        node = native.state.node_at()
    else:
        return {}
    pairs = {key_of(k): v for k, v in mapping_pairs(node) or ()}
    return {k: pairs[k] for k in KEPT if k in pairs}
