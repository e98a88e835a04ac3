"""What of the optimizer's state can't be cut: do the files that are put together agree in it?

Steps and settings, the scales of moments that FusedAdam keeps in fp16, maps and maxima of 8-bit optimizers:
of a new file's there is one. Where two files have others, their moments mean other things, and putting them
together would be silently wrong. Source: metaseq ``optim/fused_adam.py``; bitsandbytes
``optim/optimizer.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from remap.errors import InputError
from remap.formats.metaseq.files.metadata import Metadata
from remap.formats.metaseq.files.shards import OPTIMIZER, Shard, State
from remap.types import Entry, Location

WITHOUT = "leave the optimizer behind with --no-optimizer"


def check_agree(shards: Iterable[Shard], odd: Sequence[tuple[int, str]]) -> None:
    """Raise InputError naming every value, and tensor of ``odd`` (index, slot), in which a file's state
    departs from the first one's."""
    held = [(s, s.optimizer) for s in shards if isinstance(s.optimizer, State)]
    first, like = held[0]
    problems = [p for shard, state in held[1:] for p in _departs(shard, state, like, first.path.name)]
    problems += [
        f"{slot} of {i}"
        for i, slot in odd
        if len({_content(s.slots[i][slot]) for _, s in held if slot in s.slots.get(i, {})}) > 1
    ]
    if problems:
        raise InputError(
            "files differ in what the optimizer keeps once for all elements of a tensor, so that their "
            "moments can't be put together",
            where=f"{first.path}: {OPTIMIZER}",
            problems=problems,
            remedy=f"fetch the files of one step again, or {WITHOUT}",
        )


def check_units(shard: Shard, index: Mapping[str, int], metadata: Metadata) -> None:
    """Raise InputError where parameters that are to lie in one flat tensor, which has one state, have
    different ones. ``index``: parameter -> index in the state of ``shard``."""
    state = shard.optimizer
    assert isinstance(state, State)
    said: dict[str, dict[str, object]] = {}
    for name, value in state.values.items():
        place, _, rest = name.removeprefix("state.").partition(".")
        said.setdefault(place, {})[rest] = value
    for i, slots in state.slots.items():
        held = said.setdefault(str(i), {})
        held |= {k: e.spec.dtype.name if e.spec.shape else _content(e) for k, e in slots.items()}
    problems = []
    for key, flat in metadata.flats.items():
        states = [said.get(str(index[n]), {}) for n in flat.shapes]
        names = dict.fromkeys(k for s in states for k in s)
        odd = [k for k in names if len({s.get(k) for s in states}) > 1]
        if odd:
            problems.append(f"{key}: {', '.join(odd)} of {', '.join(list(flat.shapes)[:4])}")
    if problems:
        raise InputError(
            "parameters that lie in one flat tensor have different states, and it has one",
            where=f"{shard.path}: {OPTIMIZER}",
            problems=problems,
            remedy=WITHOUT,
        )


def _departs(shard: Shard, state: State, like: State, name: str) -> Iterator[str]:
    if state.values is like.values:
        return
    for key in dict.fromkeys([*like.values, *state.values]):
        mine, other = (s.values.get(key, "nothing") for s in (state, like))
        if mine != other:
            yield f"{shard.path.name}: {key} is {mine}, in {name} {other}"


def _content(entry: Entry) -> tuple[str, bytes]:
    place = entry.location
    if not isinstance(place, Location) or not entry.spec.nbytes:
        return str(entry.spec), b""
    with place.file.open("rb") as f:
        f.seek(place.offset)
        return str(entry.spec), f.read(entry.spec.nbytes)
