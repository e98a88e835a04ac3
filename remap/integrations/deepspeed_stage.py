"""What a stage of a DeepSpeed pipeline holds, by a pipeline checkpoint's names: ``2.attention...``.

A layer's number is that of the whole pipeline; layers that are plain functions have no tensors, and a tied
layer that is a function of its first copy has none either. Source: DeepSpeed runtime/pipe/module.py
(``load_state_dir``, ``ckpt_layer_path``). DeepSpeed itself is not imported here.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch import nn

from remap.audits.target import Target
from remap.integrations.torch_model import target_of


def layers_of(module: Any) -> list[tuple[int, nn.Module]]:
    """The layers of this stage that ``load_state_dir`` loads, with their numbers, in its order."""
    return [
        (module._local_start + n, layer)
        for n, layer in enumerate(module.forward_funcs)
        if hasattr(layer, "load_state_dict")
    ]


def stage_target(module: Any) -> Target:
    """This stage as the target of a load, ties over its layers, too."""
    parts = nn.ModuleDict({str(n): layer for n, layer in layers_of(module)})
    return target_of(parts, type(module).__name__)


def joined(stages: Iterable[Target]) -> Target:
    """The whole pipeline, its layers in order. Stages that are copies of each other count once."""
    found = list(stages)
    specs = {k: s for t in found for k, s in t.specs.items()}
    ties = {k: first for t in found for k, first in (t.ties or {}).items()}
    buffers = frozenset(k for t in found for k in t.buffers or ())
    order = sorted(specs, key=lambda k: int(k.partition(".")[0]))
    return Target(found[0].name, {k: specs[k] for k in order}, buffers, ties)
