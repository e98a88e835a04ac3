"""How many of the target's keys would match under other names."""

from __future__ import annotations

from collections.abc import Mapping

from remap.audits.comparison import Comparison


def fitting(table: Comparison, names: Mapping[str, str]) -> dict[str, str]:
    """Of ``names`` (offered key -> new name) those that the target has, in its shape. Two of one name:
    none."""
    wanted, given = table.target.specs, table.offered
    seen: dict[str, str] = {}
    double: set[str] = set()
    for key, name in names.items():
        spec = wanted.get(name)
        if spec is None or not (table.unshaped or given[key].shape == spec.shape):
            continue
        if name in seen:
            double.add(name)
        seen[name] = key
    return {key: name for name, key in seen.items() if name not in double}


def unchanged(table: Comparison) -> dict[str, str]:
    """Those that fit as they are."""
    return fitting(table, {k: k for k in table.offered if k in table.target.specs})
