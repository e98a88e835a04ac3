"""Two shapes of one key -> what the difference looks like, in words."""

from __future__ import annotations

import re
from math import prod

Shape = tuple[int, ...]
_VOCABULARY = re.compile(
    r"(?:^|\.|_)(?:emb\w*|wte|embed\w*|tok_embeddings|lm_head|head|final_linear|vocab\w*|output|decoder|shared)(?:\.|_|$)"
)
_EXPERTS = re.compile(r"(?:^|[._])(?:experts?|gate|router|moe)(?:[._]|$)")
PARTS = 64
"""The largest number of tensor-parallel parts that is guessed."""


def diagnose(key: str, found: Shape, wanted: Shape) -> str:
    """What ``found`` looks like beside ``wanted``, most telling first."""
    sizes = f"{list(found)} against {list(wanted)}"
    if len(found) == len(wanted) == 2 and found == wanted[::-1]:
        return f"transposed: {sizes}"
    if prod(found) == prod(wanted):
        return f"flattened, or in another shape: {sizes}, as many elements"
    if len(found) != len(wanted):
        return f"another number of dimensions: {sizes}"
    differing = [d for d, (a, b) in enumerate(zip(found, wanted, strict=True)) if a != b]
    if len(differing) > 1:
        return f"{len(differing)} dimensions differ: {sizes}; a model of another size?"
    d = differing[0]
    a, b = found[d], wanted[d]
    return f"{_one(key, d, a, b)}: {sizes}"


def _one(key: str, d: int, a: int, b: int) -> str:
    small, large = min(a, b), max(a, b)
    ratio = large // small if small and large % small == 0 else 0
    if d == 0 and _EXPERTS.search(key):
        return f"{a} experts, the target has {b}"
    if d == 0 and _VOCABULARY.search(key) and not 2 <= ratio <= PARTS:
        which = "the target's is padded" if a < b else "the source's is padded"
        return f"vocabulary of {a}, the target has {b} ({which}, or another tokenizer)"
    if 2 <= ratio <= PARTS:
        if a < b:
            return f"one of {ratio} tensor-parallel parts along dimension {d}"
        return f"whole, where the target holds one of {ratio} parts along dimension {d}"
    return f"dimension {d} is {a}, the target's is {b}"
