"""What dialects of LoRA have in common: a table of leaves, ``module.leaf``, values as PEFT keeps them."""

from __future__ import annotations

from collections.abc import Mapping

from remap.dialects.base import AdapterTensor
from remap.errors import UsageError


def leaf_of(key: str, leaves: Mapping[str, str]) -> tuple[str, str] | None:
    """Module and leaf in PEFT's words, by a table of this dialect's leaf -> PEFT's; the longest counts."""
    segments = key.split(".")
    for n in (3, 2, 1):
        found = leaves.get(".".join(segments[-n:])) if n < len(segments) else None
        if found:
            return ".".join(segments[:-n]), found
    return None


def word_for(tensor: AdapterTensor, leaves: Mapping[str, str], dialect: str) -> str:
    """This dialect's word for a leaf. Raises UsageError where it has none."""
    for word, leaf in leaves.items():
        if leaf == tensor.leaf:
            return word
    raise UsageError(
        f"{dialect} has no word for {tensor.leaf}, and without it this is another adapter",
        where=tensor.key,
        remedy="keep the adapter in a dialect that has one (--to peft)",
    )


def joined(*parts: str) -> str:
    """The parts that are not empty, as one key."""
    return ".".join(p for p in parts if p)
