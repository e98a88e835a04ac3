"""Two checkpoints compared: every key that they don't share, and what became of every tensor that differs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from remap.comparing.digests import digests
from remap.comparing.relations import relate, unlike
from remap.errors import UsageError
from remap.expr import Take
from remap.types import Catalog


@dataclass(frozen=True, slots=True)
class Difference:
    """One key of which two checkpoints have not the same: ``verdict`` is ``only in A``, ``only in B``, or one
    of ``remap.comparing.relations``; ``detail`` has both sides."""

    key: str
    verdict: str
    detail: str


def compare(a: Catalog, b: Catalog, *, values: bool = True) -> list[Difference]:
    """Every difference of two checkpoints, in the order of their keys. With ``values`` every byte is looked
    at; without, headers only.

    Raises UsageError where values are asked for and one side has none.
    """
    for side in (a, b) if values else ():
        if any(e.location is None and e.spec.numel for e in side.entries.values()):
            raise UsageError(
                f"its values can't be read, it is {side.format}",
                where=side.root,
                remedy="compare keys, shapes and dtypes only: --no-values",
            )
    found = [Difference(k, "only in A", str(e.spec)) for k, e in a.entries.items() if k not in b.entries]
    found += [Difference(k, "only in B", str(e.spec)) for k, e in b.entries.items() if k not in a.entries]
    shared = [k for k in a.entries if k in b.entries]
    differing = _differing(shared, a, b) if values else [k for k in shared if _specs_differ(k, a, b)]
    how = relate if values else unlike
    return found + [Difference(k, *how(Take(a.entries[k]), Take(b.entries[k]))) for k in differing]


def _specs_differ(key: str, a: Catalog, b: Catalog) -> bool:
    return a.entries[key].spec != b.entries[key].spec


def _differing(keys: Sequence[str], a: Catalog, b: Catalog) -> list[str]:
    """Keys whose tensors are not equal, byte for byte and by their headers."""
    alike = [k for k in keys if not _specs_differ(k, a, b)]
    left, right = (digests({k: Take(side.entries[k]) for k in alike}) for side in (a, b))
    return [k for k in keys if k not in left or left[k] != right[k]]
