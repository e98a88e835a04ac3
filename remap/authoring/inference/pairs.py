"""What inference works with: keys taken apart at whole numbers, and pairs of sources and target."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

Numbers = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Pair:
    """A target tensor and what it is made of.

    op     None for a rename, else the op as it stands in a pack
    proof  content, or name
    """

    sources: tuple[str, ...]
    target: str
    op: str | dict[str, object] | None
    proof: str


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
