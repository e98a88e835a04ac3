"""The optimizer's state in torch files, weight by weight: beside the model, as torch names it.

    {"model": {...}, "optim": {"state": {weight: {slot: tensor}}, "param_groups": [{"params": [weight]}]}}

So ``get_optimizer_state_dict`` and ``FSDP.optim_state_dict`` give it. A plain ``optimizer.state_dict()``
counts parameters, on FSDP1 each rank its own: whose state is whose it does not say.
"""

from __future__ import annotations

from collections.abc import Mapping

from remap.formats.follow import Followed
from remap.formats.torch.locate import Place, follow
from remap.pickles.graph import Opaque, key_of, lookup, mapping_pairs, plain
from remap.pickles.nodes import Value
from remap.types import Entry, OptimizerState

OPTIMIZER = "optim"
"""What torch's documentation calls it."""


def place_of_optimizer(root: Value) -> Place | None:
    """Where the one state lies that is by weight, None where there is none."""
    found: list[Place] = []
    for key, value in mapping_pairs(root) or ():
        name = key_of(key)
        state = mapping_pairs(lookup(value, "state")[1]) or []
        named = all(isinstance(key_of(weight), str) for weight, _ in state)
        if isinstance(name, str) and name.startswith("optim") and state and named:
            found.append((name,))
    return found[0] if len(found) == 1 else None


def read_optimizer(root: Value, place: Place, entries: Mapping[str, Entry]) -> OptimizerState:
    """The state at ``place``; ``entries`` are the tensors in its ``state``, by weight and slot."""
    tensors: dict[str, dict[str, Entry]] = {}
    for name, entry in entries.items():
        weight, _, slot = name.rpartition(".")
        tensors.setdefault(weight, {})[slot] = entry
    held = _plain(follow(root, place))
    values = {
        str(weight): {str(s): v for s, v in slots.items() if not isinstance(v, Opaque)}
        for weight, slots in _plain_items(held.get("state"))
    }
    groups = held.get("param_groups")
    rest = {k: v for k, v in held.items() if k not in ("state", "param_groups") and not isinstance(v, Opaque)}
    return OptimizerState(
        str(place[-1]),
        tensors,
        {w: v for w, v in values.items() if v},
        [{"params": [], **g} for g in groups] if isinstance(groups, list) else [],
        rest,
    )


def write_optimizer(state: Followed) -> dict[str, object]:
    """What ``read_optimizer`` reads, to lie beside a model: nested dicts, its tensors expressions."""
    held = {key: slots for key in state.keys if (slots := state.slots(key))}
    return {"state": held, "param_groups": [dict(g) for g in state.groups], **state.rest}


def _plain(node: Value) -> Mapping[str, object]:
    value = plain(node)
    return value if isinstance(value, dict) else {}


def _plain_items(value: object) -> list[tuple[object, Mapping[object, object]]]:
    return [(k, v) for k, v in value.items() if isinstance(v, dict)] if isinstance(value, dict) else []
