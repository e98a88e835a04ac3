"""What inference works with: keys taken apart at whole numbers, and pairs of sources and target."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, Union

from remap.ops.base import NoInverse
from remap.ops.registry import read_op
from remap.ops.spelling import spelled

Numbers = tuple[int, ...]
Step = Union[str, dict[str, object]]
"""An op as it stands in a pack."""
MEMBER = "e"
"""The capture that counts what is stacked: experts, mostly."""


@dataclass(frozen=True, slots=True)
class Fold:
    """Keys of one side that are members of an axis, all parts of the first, then all of the second.

    slot   which of their numbers counts the members, from 0
    parts  how many keys a member has
    """

    side: Literal["sources", "targets"]
    slot: int
    parts: int


@dataclass(frozen=True, slots=True)
class Pair:
    """Target tensors and what they are made of.

    steps    the ops, in order; none for a rename
    proof    content, or name
    more     further targets, where the ops cut
    fold     where one side is members of an axis
    confirm  what names and shapes can't say, and the author has to
    """

    sources: tuple[str, ...]
    target: str
    steps: tuple[Step, ...]
    proof: str
    more: tuple[str, ...] = ()
    fold: Fold | None = None
    confirm: str = ""

    @property
    def targets(self) -> tuple[str, ...]:
        """All targets, in the order of the parts."""
        return (self.target, *self.more)

    def first(self, side: Literal["sources", "targets"], members: int = 1) -> tuple[str, ...]:
        """The keys of a side; where they are members of an axis, those of the first ``members``."""
        keys = self.sources if side == "sources" else self.targets
        folded = self.fold is not None and self.fold.side == side
        return keys[: self.fold.parts * members] if folded and self.fold else keys


@lru_cache(maxsize=1 << 20)
def apart(key: str) -> tuple[str, Numbers]:
    """A key's segments with every whole-segment number replaced by ``#``, and the numbers.

    ``layers.3.fc1`` has one number: the 1 of ``fc1`` is part of a name.
    """
    numbers: list[int] = []
    segments: list[str] = []
    for segment in key.split("."):
        if segment.isascii() and segment.isdigit() and (segment == "0" or segment[0] != "0"):
            numbers.append(int(segment))
            segments.append("#")
        else:
            segments.append(segment)
    return ".".join(segments), tuple(numbers)


def counted(members: Sequence[Sequence[str]]) -> int | None:
    """The number that counts the members from 0, in all of their keys; None where there is none."""
    found: set[int] = set()
    for several in zip(*members, strict=True):
        skeletons = {apart(key)[0] for key in several}
        columns = list(zip(*(apart(key)[1] for key in several), strict=True)) if len(skeletons) == 1 else []
        moving = [s for s, column in enumerate(columns) if len(set(column)) > 1]
        if len(moving) != 1 or columns[moving[0]] != tuple(range(len(members))):
            return None
        found.add(moving[0])
    return found.pop() if len(found) == 1 else None


def undone(steps: Sequence[Step]) -> tuple[Step, ...]:
    """The steps of the way back."""
    found: list[Step] = []
    for step in reversed(steps):
        name, arguments = (step, {}) if isinstance(step, str) else next(iter(step.items()))
        assert isinstance(arguments, dict)
        back = read_op(name, arguments).inverse()
        assert not isinstance(back, NoInverse)
        found.append(spelled(back))
    return tuple(found)
