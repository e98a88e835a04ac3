"""Name -> partition class, and how a layout or a rule spells one: ``rows``, ``rows(heads)``, ``fused(2)``.

A new class is one file and one line here.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from remap.errors import PackError
from remap.ops import arithmetic
from remap.ops.arithmetic import Arithmetic
from remap.partitions.base import Partition, Size

PARTITIONS: dict[str, str] = {
    "addends": "remap.partitions.addends:Addends",
    "columns": "remap.partitions.stretches:columns",
    "fused": "remap.partitions.blocks:fused",
    "fused_columns": "remap.partitions.blocks:fused_columns",
    "innermost": "remap.partitions.stretches:innermost",
    "qkv": "remap.partitions.blocks:qkv",
    "replicated": "remap.partitions.replicated:Replicated",
    "rows": "remap.partitions.stretches:rows",
    "vocabulary": "remap.partitions.vocabulary:Vocabulary",
}
"""name -> module:what makes one of sizes"""

_SPELLED = re.compile(r"([a-z_]+)(?:\((.+)\))?")


@dataclass(frozen=True)
class Spelled:
    """A class as it is written: its name, and its sizes as arithmetic over parameters."""

    name: str
    sizes: tuple[Arithmetic, ...] = ()

    @property
    def symbols(self) -> frozenset[str]:
        """The parameters that its sizes name."""
        return frozenset[str]().union(*map(arithmetic.names, self.sizes))

    def resolve(self, numbers: Mapping[str, int]) -> Partition:
        """The class with the sizes that are known."""
        sizes = [
            Size(
                str(tree),
                arithmetic.evaluate(tree, numbers) if arithmetic.names(tree) <= numbers.keys() else None,
            )
            for tree in self.sizes
        ]
        found: Partition = _maker(self.name)(*sizes)
        return found

    def __str__(self) -> str:
        return f"{self.name}({', '.join(map(str, self.sizes))})" if self.sizes else self.name


def read_partition(text: str) -> Spelled:
    """The class that ``text`` spells. Raises PackError, with a suggestion for an unknown name."""
    found = _SPELLED.fullmatch(text.strip())
    if found is None or found[1] not in PARTITIONS:
        from rapidfuzz.process import extractOne

        near = extractOne(found[1] if found else text, list(PARTITIONS), score_cutoff=60)
        raise PackError(
            f"no partition is called {text!r}" + (f"; did you mean {near[0]!r}?" if near else ""),
            remedy=f"use one of {', '.join(PARTITIONS)}",
        )
    sizes = tuple(arithmetic.parse(part) for part in found[2].split(",")) if found[2] else ()
    takes = [p for p in inspect.signature(_maker(found[1])).parameters.values() if p.name != "dim"]
    least = sum(p.default is p.empty for p in takes)
    if not least <= len(sizes) <= len(takes):
        wanted = f"{found[1]}({', '.join(p.name for p in takes)})" if takes else found[1]
        raise PackError(f"{text!r}: write {wanted}")
    return Spelled(found[1], sizes)


def _maker(name: str) -> Any:
    module, _, what = PARTITIONS[name].partition(":")
    return getattr(import_module(module), what)
