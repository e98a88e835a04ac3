"""``remap adapter extract``: a checkpoint with adapters in it -> one of its parts.

adapter       the adapter alone (and MAGMA's image prefix), as a folder that PEFT or ``graft`` takes
image-prefix  MAGMA's image prefix alone
base          the weights of the base under their own names
unwrapped     the base's names, adapters kept beside them
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from remap.adapters.check import check
from remap.adapters.configuring.own import about
from remap.adapters.extracting.chosen import Chosen, choose
from remap.adapters.extracting.peft_folder import peft_folder
from remap.adapters.extracting.trained import trained
from remap.adapters.read import CONFIG, OWN, read, read_json
from remap.adapters.write import write_adapter, write_model
from remap.destination import SUFFIXES
from remap.dialects import registry
from remap.dialects.magma import is_prefix
from remap.errors import UsageError
from remap.opening import Source, catalog
from remap.output import How
from remap.plan import Drop, Output, Plan
from remap.receipt import Receipt
from remap.types import Catalog

PARTS = ("adapter", "image-prefix", "base", "unwrapped")
ALONE = ("peft", "kohya", "diffusers", "mlx")
"""Dialects of files that hold an adapter and no model: what else is in them is left out."""


def extract(
    source: Source,
    destination: str | Path,
    *,
    part: str = "adapter",
    name: str | None = None,
    base: Source | None = None,
    settings: Mapping[str, object] | None = None,
    config: str | Path | None = None,
    at: str | None = None,
    to: str | None = None,
    how: How | None = None,
) -> tuple[Receipt, tuple[str, ...]]:
    """Write one part of the checkpoint at ``source``; the receipt, and what to know of it.

    name      the adapter's name, where there are several
    base      what the model was made from: weights that differ from it were trained: they are the adapter's
    settings  of ``adapter_config.json``, which the tensors don't tell: ``{"lora_alpha": 16}``
    config    an ``adapter_config.json``, where none lies beside the checkpoint
    at        where the state dict lies in a torch file
    to        format, where the base is written

    Raises UsageError, InputError; nothing is written then.
    """
    if part not in PARTS:
        raise UsageError(f"there is no part {part!r}", remedy=f"use one of {', '.join(PARTS)}")
    chosen = choose(read(source, at=at), name)
    if part in ("base", "unwrapped"):
        plan = _plan(chosen, _weights(chosen, adapters=part == "unwrapped"), part)
        return write_model(plan, destination, how or How(), to=to), ()
    check(chosen.adapter)
    given = chosen.adapter.config if config is None else read_json(Path(config))
    if part == "image-prefix":
        chosen = _prefix(chosen)
    known = None if base is None else catalog(base)
    outputs: list[Output]
    document: dict[str, object] | None
    if chosen.adapter.dialect == "peft-model":
        outputs, document = peft_folder(chosen, given, settings or {}, known)
    elif chosen.adapter.dialect in ALONE:
        outputs, document = [chosen.copy(t.key, t.key) for t in chosen.adapter.tensors], dict(given) or None
    else:
        outputs, document = _own(chosen, known)
    if document and Path(destination).suffix in SUFFIXES and part == "adapter":
        raise UsageError(
            "one file has no place for what its tensors don't tell of the adapter",
            where=destination,
            remedy="name a folder",
        )
    file = OWN if document and "dialect" in document else CONFIG
    return write_adapter(_plan(chosen, outputs, part), destination, document, how or How(), file), ()


def _plan(chosen: Chosen, outputs: Iterable[Output], part: str) -> Plan:
    made = tuple(outputs)
    if not made:
        raise UsageError(f"no {part} is in it", where=chosen.adapter.catalog.root)
    read_keys = {k for o in made for k in o.sources}
    entries = chosen.adapter.catalog.entries
    drops = tuple(Drop(k, "", f"it is not of the {part}") for k in entries if k not in read_keys)
    return Plan(chosen.adapter.catalog, made, drops)


def _weights(chosen: Chosen, *, adapters: bool) -> Iterator[Output]:
    for name, key in chosen.model.items():
        yield chosen.copy(key, name)
    for t in chosen.adapter.tensors if adapters else ():
        yield chosen.copy(t.key, t.key)


def _prefix(chosen: Chosen) -> Chosen:
    """The image prefix alone."""
    tensors = tuple(t for t in chosen.adapter.tensors if is_prefix(t))
    return replace(chosen, adapter=replace(chosen.adapter, tensors=tensors), around={})


def _own(chosen: Chosen, base: Catalog | None) -> tuple[list[Output], dict[str, object]]:
    """An adapter under the names that it has in the model, and what it is."""
    adapter = chosen.adapter
    spell = registry.get(adapter.dialect).spell
    outputs = [chosen.copy(t.key, spell(t)) for t in adapter.tensors]
    changed: tuple[str, ...] = ()
    if base is not None:
        model = {n: adapter.catalog.entries[k] for n, k in chosen.model.items()}
        changed = trained(model, base)
        outputs += [chosen.copy(chosen.model[n], n) for n in changed]
    return outputs, about(adapter, chosen.around, changed)
