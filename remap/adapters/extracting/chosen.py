"""One of the adapters of a model, and its weights under the names that they have without adapters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from remap.adapters.model import Adapter
from remap.audits.names.wrappers import unwrap
from remap.comparing.digests import digest
from remap.dialects import registry
from remap.dialects.base import AdapterTensor, Wraps
from remap.dialects.peft import TOKENS
from remap.dialects.wrapping import ALSO_NAMES, Around, bare, strangers
from remap.errors import UsageError
from remap.expr import Take
from remap.plan import Output

SHARED = ("vera_A", "vera_B", "pvera_A", "pvera_B", "vblora_vector_bank")
"""Projections that all modules share: the model's state dict has them in each."""


@dataclass(frozen=True)
class Chosen:
    """An adapter in its model.

    adapter  with the tensors of one adapter only
    around   module -> the segments of its wrapper
    model    the base's name of a weight -> its key in the model
    """

    adapter: Adapter
    around: Around
    model: Mapping[str, str]

    def copy(self, old: str, new: str) -> Output:
        """The tensor ``old`` of the checkpoint under the name ``new``."""
        op = "copy" if old == new else "rename"
        return Output(new, Take(self.adapter.catalog.entries[old]), "", (old,), op)


def choose(found: Adapter, name: str | None = None) -> Chosen:
    """The adapter of that name, or the only one. Raises UsageError."""
    names = [n for n in found.names if n]
    if name is None and len(names) > 1:
        raise UsageError(
            f"{len(names)} adapters are in it",
            where=found.catalog.root,
            problems=names,
            remedy="say which one with --name",
        )
    if name is not None and name not in names:
        raise UsageError(f"no adapter is called {name!r}", where=found.catalog.root, problems=names)
    dialect = registry.get(found.dialect)
    around: Around = {}
    if isinstance(dialect, Wraps):
        around = dialect.around(found.tensors, map(unwrap, found.catalog.entries))
    mine = tuple(t for t in found.tensors if name in (None, t.adapter))
    kept = replace(found, tensors=tuple(_once(mine, found)))
    return Chosen(kept, around, dict(_weights(found, around)))


def _once(tensors: Iterable[AdapterTensor], found: Adapter) -> Iterable[AdapterTensor]:
    """Without second names of one tensor, and without what PEFT does not save."""
    mine = {t.key for t in tensors}
    tokens: set[str] = set()
    for t in tensors:
        again = found.dialect.startswith("magma") and found.catalog.aliases.get(t.key) in mine
        if t.leaf.startswith(TOKENS):  # a head that is tied to the embedding has the very same
            values = digest(Take(found.catalog.entries[t.key]))
            again = values in tokens
            tokens.add(values)
        if not again and not (t.module and t.leaf in SHARED) and t.leaf != "ranknum":
            yield t


def _weights(found: Adapter, around: Around) -> Iterable[tuple[str, str]]:
    """The base's names. Raises UsageError where two weights would get one, and for tensors in wrapped modules
    that nobody knows: left out, they would be lost."""
    unwrapped = {unwrap(key): key for key in found.base}
    sure = {m: w for m, w in around.items() if not ALSO_NAMES.issuperset(w)}
    unknown = [unwrapped[key] for key in strangers(unwrapped, sure)]
    if unknown:
        raise UsageError(
            "tensors beside an adapter's are neither its own, as far as remap knows, nor the base's",
            where=found.catalog.asked or found.catalog.root,
            problems=unknown,
            remedy="let the library that wrapped the model save the adapter",
        )
    seen: dict[str, str] = {}
    problems = []
    for key in found.base:
        name = bare(unwrap(key), around)
        if name in seen:
            problems.append(f"{name}: {seen[name]} and {key}")
        seen[name] = key
        yield name, key
    if problems:
        raise UsageError("two weights have one name without their wrappers", problems=problems)
