"""The model with ZeRO's fp32 weights in the place of those that it was trained with, and the optimizer's
state under its keys.

In: the entries of the module, or of pipeline layer files, and what the shards hold by name. A frozen weight
and a buffer are in no shard: they stay as the model has them, so none is lost. Names that the model does not
have are those of another model: ZeRO files that were left beside converted weights.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from remap.errors import Damaged
from remap.formats.deepspeed.zero.run import Run
from remap.formats.deepspeed.zero.weights import WITHOUT, check_even
from remap.pickles.graph import Opaque
from remap.types import Entry, OptimizerState, TensorSpec, find_ties

TIED = re.compile(r"tied_modules\.[^.]+\.(?P<rest>.+)")
"""What a pipeline calls a weight that two of its layers share. Its layer file is that of the first of them,
and knows it by ``rest``. Source: DeepSpeed ``runtime/pipe/module.py`` (``_build``)."""

OPTIMIZER = "optimizer"
SHARED = "shared_params"


class Overlay(NamedTuple):
    """A model with fp32 weights.

    entries  all its tensors
    keys     the optimizer's name of a weight -> its key
    """

    entries: Mapping[str, Entry]
    keys: Mapping[str, str]


def overlay(entries: Mapping[str, Entry], run: Run) -> Overlay:
    """``entries`` with the fp32 weights of ``run`` for all that have them. Raises Damaged, InputError."""
    keys = keys_of(run, entries)
    fp32 = {keys[name]: entry for name, entry in run.everything.fp32.items()}
    ties = find_ties(entries.values())
    tied = {ties.get(key, key): entry for key, entry in fp32.items()}
    shared = {alias: keys.get(name, name) for alias, name in _shared(run)}
    out = {}
    for key, entry in entries.items():
        found = fp32.get(key) or tied.get(ties.get(key, key)) or fp32.get(shared.get(key, ""))
        out[key] = Entry(key, found.spec, found.location) if found else entry
    return Overlay(out, keys)


def keys_of(run: Run, entries: Mapping[str, Entry]) -> dict[str, str]:
    """The optimizer's name of every weight -> its key in the model. Raises Damaged for names that are none of
    its, and for other shapes."""
    found: dict[str, str] = {}
    strange = []
    known = run.everything.fp32
    for name, entry in known.items():
        key = name if name in entries else _tied_key(name, entry.spec, entries, known)
        if key is None:
            strange.append(f"{name}: the model has no such weight")
        elif entries[key].spec.shape != entry.spec.shape:
            strange.append(f"{name}: {entry.spec}, the model has {entries[key].spec}")
        else:
            found[name] = key
    if strange:
        raise Damaged(
            "the ZeRO files are of another model: they were left from before the weights were converted",
            where=run.folder,
            problems=strange,
            remedy=f"remove *_optim_states.pt, or fetch the model files of the same step; {WITHOUT}",
        )
    return found


def _tied_key(
    name: str, spec: TensorSpec, entries: Mapping[str, Entry], known: Mapping[str, Entry]
) -> str | None:
    """The key of a tied weight: in the first layer that has it and is not known by a name of its own."""
    tied = TIED.fullmatch(name)
    if tied is None:
        return None
    alike = [k for k, e in entries.items() if k not in known and e.spec.shape == spec.shape]
    parted = (k.partition(".") for k in alike)
    numbers = [int(n) for n, _, rest in parted if rest == tied["rest"] and n.isdigit()]
    return f"{min(numbers)}.{tied['rest']}" if numbers else None


def _shared(run: Run) -> Iterator[tuple[str, str]]:
    """Name of a weight that is another's, and the other's: rank 0 lists them."""
    for model in run.models.values():
        listed = model.plain(SHARED) if SHARED in model.keys else None
        for alias, name in listed.items() if isinstance(listed, dict) else ():
            if isinstance(alias, str) and isinstance(name, str):
                yield alias, name


def optimizer_state(run: Run, keys: Mapping[str, str]) -> OptimizerState:
    """The optimizer's state under the model's keys. Raises InputError for what is not one element for an
    element."""
    weights = run.everything
    check_even(weights, run.folder)
    settings = max((s[0].settings for s in run.shards.values()), key=len)
    groups: list[dict[str, object]] = []
    for number, group in enumerate(settings):
        held = [keys[n] for n, g in weights.group.items() if g == number]
        groups.append({**group, "params": held})
    return OptimizerState(
        name=OPTIMIZER,
        tensors={
            keys[n]: {s: Entry(f"{keys[n]}.{s}", e.spec, e.location) for s, e in slots.items()}
            for n, slots in weights.slots.items()
            if slots
        },
        values={keys[n]: v for n, v in weights.values.items() if v},
        groups=groups,
        rest={k: v for k, v in run.first.rest.items() if not isinstance(v, Opaque)},
    )
