"""What is wrong with an adapter in itself, whatever its base: half pairs, ranks, strangers, two of a kind."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from remap.adapters.model import Adapter
from remap.adapters.scaling import by_pattern, rank
from remap.dialects import pairs
from remap.errors import Damaged, UsageError
from remap.types import Catalog

KEEP = ("refuse", "drop", "keep")
"""What may be done with tensors that are no adapter's."""


def check(adapter: Adapter) -> None:
    """Raise Damaged, with every problem of the tensors themselves."""
    found = problems(adapter)
    if found:
        raise Damaged(
            "the adapter is not whole",
            where=adapter.catalog.asked or adapter.catalog.root,
            problems=found,
            remedy="save it again, from all ranks and stages, gathered",
        )


def problems(adapter: Adapter) -> list[str]:
    """A line for every tensor or module with which something is wrong."""
    return [f"{what}: {why}" for what, why in (*_broken(adapter), *_ranks(adapter))]


def strangers(adapter: Adapter, policy: str) -> tuple[str, ...]:
    """Keys of an adapter's file that are not the adapter's, to be kept. Raises UsageError under ``refuse``:
    unknown leaves change what the adapter does, weights of the base make it another file."""
    if not adapter.base or policy == "drop":
        return ()
    if policy == "keep":
        return adapter.base
    share = size(adapter.catalog, adapter.base) / max(size(adapter.catalog, adapter.catalog.entries), 1)
    raise UsageError(
        f"{len(adapter.base)} tensors ({share:.0%} of the bytes) are no {adapter.dialect} adapter's",
        where=adapter.catalog.asked or adapter.catalog.root,
        problems=adapter.base,
        remedy="say what is to be done with them, --others drop or --others keep; a full checkpoint is for "
        "remap adapter extract",
    )


def size(catalog: Catalog, keys: Iterable[str]) -> int:
    """Bytes of these tensors."""
    return sum(catalog.entries[k].spec.nbytes for k in keys)


def _broken(adapter: Adapter) -> Iterator[tuple[str, str]]:
    specs = {t.key: adapter.spec(t) for t in adapter.tensors}
    yield from pairs.broken(adapter.tensors, specs, adapter.dialect)


def _ranks(adapter: Adapter) -> Iterator[tuple[str, str]]:
    """Modules whose rank is not the configuration's."""
    if adapter.config.get("peft_type") != "LORA" or adapter.config.get("target_parameters"):
        return  # the A of a parameter of many experts has the rows of all of them
    for module in adapter.modules:
        found = rank(adapter, module)
        said = by_pattern(adapter.config.get("rank_pattern"), module) or adapter.config.get("r")
        if found is not None and isinstance(said, int) and found != said:
            yield module, f"its rank is {found}, adapter_config.json says {said}"
