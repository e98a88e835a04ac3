"""Which of many numbered files are not there.

How many there should be is a number in a file's name or header: a stranger's, and perhaps no count at all
(``run-shard20230608.pt``). It is never counted up to.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import islice

from remap.errors import SHOWN


def absent(held: Collection[int], count: int) -> tuple[int, list[int]]:
    """How many of the numbers below ``count`` are not in ``held``, and the first of them."""
    there = {n for n in held if 0 <= n < count}
    first = islice((n for n in range(count) if n not in there), SHOWN)
    return count - len(there), list(first) if len(there) < count else []
