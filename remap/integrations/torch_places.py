"""Where the tensors of an ``nn.Module`` lie: which module owns each key, and which keys are one tensor.

    places(model)   key of the state dict -> Place
    tied(model)     groups of keys that are one tensor

A module with loading code of its own (``_load_from_state_dict``, hooks) is told apart: its tensors have to go
through that code, all of one module together. So is a key that no module owns by that name, since a hook of
``state_dict`` made it.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from remap.errors import UsageError
from remap.integrations.torch_model import memory

FSDP1 = "FullyShardedDataParallel"
"""The class that makes one flat tensor of many."""


@dataclass(frozen=True, slots=True, eq=False)
class Place:
    """A parameter or persistent buffer.

    owner   the module that has it
    name    the attribute of the owner
    prefix  the owner's name in the model, with its dot
    plain   no code of the owner has a say in how it is loaded
    """

    owner: nn.Module
    name: str
    prefix: str
    plain: bool

    @property
    def tensor(self) -> torch.Tensor:
        """What is there now."""
        found: torch.Tensor = getattr(self.owner, self.name)
        return found

    def put(self, tensor: torch.Tensor) -> torch.Tensor:
        """Put ``tensor`` itself there, as a parameter where a parameter is; gives what is there then."""
        old = self.owner._parameters.get(self.name)
        if old is None:
            self.owner._buffers[self.name] = tensor
            return tensor
        new = tensor
        if not isinstance(tensor, nn.Parameter):
            new = nn.Parameter(tensor, requires_grad=old.requires_grad)
        self.owner._parameters[self.name] = new  # type: ignore[assignment]  # it is a Parameter now
        return new


def places(model: nn.Module) -> dict[str, Place]:
    """Every key of ``model.state_dict()`` that a module owns by that name, extra state apart."""
    found = {}
    for path, module in model.named_modules(remove_duplicate=False):
        prefix = f"{path}." if path else ""
        plain = _is_plain(module)
        passing = module._non_persistent_buffers_set
        names = [n for n, p in module._parameters.items() if p is not None]
        names += [n for n, b in module._buffers.items() if b is not None and n not in passing]
        found.update({f"{prefix}{n}": Place(module, n, prefix, plain) for n in names})
    return found


def _is_plain(module: nn.Module) -> bool:
    if type(module)._load_from_state_dict is not nn.Module._load_from_state_dict:
        return False
    return not (module._load_state_dict_pre_hooks or module._load_state_dict_post_hooks)


def tied(there: Mapping[str, Place]) -> dict[str, tuple[str, ...]]:
    """Key -> all keys of the same tensor, itself among them, in the model's order."""
    groups: dict[object, list[str]] = {}
    for key, place in there.items():
        groups.setdefault(memory(place.tensor), []).append(key)
    return {key: tuple(group) for group in groups.values() for key in group}


def on_meta(model: nn.Module) -> list[str]:
    """Parameters and buffers, those that no state dict has among them, that have no memory yet."""
    everything = [*model.named_parameters(), *model.named_buffers()]
    return [name for name, tensor in everything if tensor.is_meta]


def expanded(tensor: torch.Tensor) -> bool:
    """Do several of its elements lie at one place? Nothing can be copied into it."""
    strided = tensor.layout is torch.strided
    return strided and any(n > 1 and step == 0 for n, step in zip(tensor.shape, tensor.stride(), strict=True))


def check_whole(model: nn.Module) -> None:
    """Raise UsageError where tensors were cut up behind the model's back: what is seen is not whole."""
    where = [n or "the model" for n, m in model.named_modules() if type(m).__name__ == FSDP1]
    where += [n for n, p in model.named_parameters() if hasattr(p, "ds_id")]  # deepspeed.zero.Init
    if where:
        raise UsageError(
            "the model's parameters are cut up (FSDP1, or DeepSpeed's ZeRO-3)",
            problems=where,
            remedy="load before it is wrapped or initialised",
        )


def share(tensor: torch.Tensor, there: torch.Tensor) -> torch.Tensor:
    """The part of a whole tensor that this rank holds where ``there`` is a DTensor; else all of it."""
    module: Any = sys.modules.get("torch.distributed.tensor")  # who has a DTensor has imported it
    if module is None or not isinstance(there, getattr(module, "DTensor", ())):
        return tensor
    part: Any = there
    mesh = part.device_mesh
    found: torch.Tensor = module.distribute_tensor(tensor.to(mesh.device_type), mesh, part.placements)
    return found
