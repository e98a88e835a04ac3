"""What inference works with: keys taken apart at whole numbers, and pairs of sources and target."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Union

Numbers = tuple[int, ...]
Op = Union[str, dict[str, object], None]
"""An op as it stands in a pack; None for a rename."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A target tensor and what it is made of.

    proof  content, or name
    more   further targets, where the op cuts
    """

    sources: tuple[str, ...]
    target: str
    op: Op
    proof: str
    more: tuple[str, ...] = ()

    @property
    def targets(self) -> tuple[str, ...]:
        """All targets, in the order of the parts."""
        return (self.target, *self.more)


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
