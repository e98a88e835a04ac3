"""Tensors of the base that were trained in full: they are converted as the base's own are.

Where the packs join one with tensors that the adapter has not (the biases of query and value with the key's),
the base has the rest, and has to be given.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from remap.adapters.algebra.substitute import substitute
from remap.adapters.migrating.job import Carried, Job, at, split
from remap.dialects.base import AdapterTensor
from remap.errors import UsageError
from remap.expr import Cast, Expr, takes


@dataclass(frozen=True)
class Trained:
    """A tensor that was trained in full.

    head  what holds it in the adapter: ``modules_to_save``, ``ln_tuning_layers``, ``base_layer``, or nothing
    """

    head: str
    module: str
    name: str
    carried: Carried


def whole(job: Job) -> list[Trained]:
    """Every tensor that was trained in full; what can't be carried is added to the job's problems."""
    places = job.of("whole")
    values = {k: job.value(t) for k, p in places.items() for t in p.tensors.values()}
    found = []
    for output, mine in job.readers(places):
        try:
            expr = _value(job, output.expr, values)
        except UsageError as e:
            job.problems.append(f"{' and '.join(p.key for p in mine)} -> {output.key}: {e.what}")
            continue
        (first,) = mine[0].tensors.values()
        head, inner = _head(first.leaf)
        module, name = _module(output.key, inner)
        tensor = at(first, module, f"{head}.{name}" if head else name)
        found.append(Trained(head, module, name, Carried(tensor, expr, output.rule, output.op)))
    return found


def _head(leaf: str) -> tuple[str, str]:
    head, _, inner = leaf.partition(".")
    return (head, inner) if inner else ("", leaf)


def _module(key: str, inner: str) -> tuple[str, str]:
    """The module that was saved and the path within it: as before, where the new key still ends so."""
    if key.endswith(f".{inner}"):
        return key.removesuffix(f".{inner}"), inner
    return split(key)


def _value(job: Job, expr: Expr, values: dict[str, Expr]) -> Expr:
    """The tensor; what the adapter has not is the base's. Raises UsageError."""
    rest = {t.entry.key: t for t in takes(expr) if t.entry.key not in values}
    lost = [k for k, t in rest.items() if t.entry.location is None]
    if lost:
        raise UsageError(f"the base's {', '.join(lost)} is needed: give the checkpoint (--base)")
    kind = next(values[t.entry.key].spec.dtype for t in takes(expr) if t.entry.key in values)
    return substitute(expr, {**values, **{k: Cast(t, kind) for k, t in rest.items()}})


def tensors(found: list[Trained], targeted: frozenset[str]) -> Iterator[Carried]:
    """The tensors of the new adapter: PEFT has a targeted module's own bias behind ``base_layer``."""
    for t in found:
        if t.head not in ("", "base_layer"):
            yield t.carried
            continue
        leaf = f"base_layer.{t.name}" if t.module in targeted else t.name
        tensor: AdapterTensor = at(t.carried.tensor, t.module, leaf)
        yield Carried(tensor, t.carried.expr, t.carried.rule, t.carried.op)
