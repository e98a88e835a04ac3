"""What an adapter is, at a glance: its dialect, its modules with ranks and scales, what is no part of it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from remap.adapters.check import problems, size
from remap.adapters.model import Adapter
from remap.adapters.placing.places import parameter_of, parameter_rank, parameter_scale
from remap.adapters.scaling import rank, scale
from remap.dialects import registry


@dataclass(frozen=True)
class Row:
    """A module, and what the adapter has for it; ``rank`` and ``scale`` are empty where it has none."""

    adapter: str
    module: str
    leaves: tuple[str, ...]
    rank: str
    scale: str


@dataclass(frozen=True)
class About:
    """What is known of an adapter.

    others    keys that are no adapter's, and their ``share`` of the bytes
    problems  what is wrong with it in itself
    """

    dialect: str
    title: str
    method: str
    names: tuple[str, ...]
    modules: tuple[Row, ...]
    others: tuple[str, ...]
    share: float
    problems: tuple[str, ...]


def about(adapter: Adapter) -> About:
    """The summary of an adapter. Raises UsageError, Damaged for a configuration or an alpha that is none."""
    found = registry.get(adapter.dialect)
    groups: dict[tuple[str, str], list[str]] = {}
    for t in adapter.tensors:
        groups.setdefault((t.adapter, t.module), []).append(t.leaf)
    rows = tuple(_row(adapter, name, module, tuple(leaves)) for (name, module), leaves in groups.items())
    whole = size(adapter.catalog, adapter.catalog.entries)
    return About(
        dialect=adapter.dialect,
        title=found.title,
        method=str(adapter.config.get("peft_type") or found.method),
        names=adapter.names,
        modules=rows,
        others=adapter.base,
        share=size(adapter.catalog, adapter.base) / max(whole, 1),
        problems=tuple(problems(adapter)),
    )


def _row(adapter: Adapter, name: str, module: str, leaves: tuple[str, ...]) -> Row:
    """Of a bare parameter (stacked experts) the rank is that of each expert: the configuration's."""
    mine = replace(adapter, tensors=tuple(t for t in adapter.tensors if t.adapter == name))
    r = rank(mine, module)
    if not r:
        return Row(name, module, leaves, "", "")
    _, key = parameter_of(mine, module)
    if key:
        return Row(name, key, leaves, str(parameter_rank(mine, key)), f"{parameter_scale(mine, key):g}")
    told = adapter.dialect != "peft-model" or (adapter.config and len(adapter.names) == 1)
    return Row(name, module, leaves, str(r), f"{scale(mine, module):g}" if told else "")
