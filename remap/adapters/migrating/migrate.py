"""An adapter for a base whose names changed, or in another library's words: ``remap adapter migrate``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from remap.adapters.migrating.follow import DIALECT as PEFT
from remap.adapters.migrating.follow import Migrated, migrated
from remap.adapters.read import read
from remap.adapters.respelling.respell import TARGETS, respell
from remap.adapters.write import write_adapter
from remap.destination import SUFFIXES
from remap.errors import UsageError
from remap.opening import Source, catalog
from remap.output import How
from remap.planning import Rules, load_packs
from remap.receipt import Receipt


def migrate(
    source: Source,
    destination: str | Path,
    *,
    to: str | None = None,
    rules: Rules = (),
    inverse: bool = False,
    params: Mapping[str, str] | None = None,
    base: Source | None = None,
    base_name: str | None = None,
    component: str = "",
    others: str = "refuse",
    how: How | None = None,
) -> tuple[Receipt, tuple[str, ...]]:
    """Write the adapter at ``source`` as its base's packs say, or in another dialect; the receipt, and what
    to know of it.

    to         peft, kohya, diffusers, magma or megatron
    rules      packs that the base is converted with; ``inverse`` and ``params`` as in ``api.plan``
    base       the model that it was made for, or its key list: where kohya's flattened names need it; where
               packs join what the adapter changes with what it does not
    base_name  what ``adapter_config.json`` is to call the new base
    component  the part of a pipeline that it is for, where its keys name none: ``unet``, ``text_encoder``
    others     tensors in its file that are none of an adapter's: refuse, drop or keep

    Raises UsageError, InputError, PlanError; nothing is written then.
    """
    packs = load_packs(rules)
    known = None if base is None else catalog(base)
    if packs and to in (None, PEFT):
        found = migrated(read(source), packs, inverse=inverse, params=params, base=known, base_name=base_name)
        _check_scales(found, Path(destination))
        receipt = write_adapter(found.plan, destination, found.config, how or How())
        return receipt, found.plan.notes
    if packs:
        raise UsageError(
            f"packs give an adapter in PEFT's words, and --to says {to}",
            remedy="do one after the other: first -r, then --to",
        )
    if to not in TARGETS:
        raise UsageError(
            f"adapters are not written as {to!r}" if to else "nothing is to be done",
            remedy=f"give packs that its base is converted with, or use one of {', '.join(TARGETS)}",
        )
    made = respell(
        read(source),
        to,
        folder=Path(destination).suffix not in SUFFIXES,
        base=known,
        component=component,
        others=others,
    )
    return write_adapter(made.plan, destination, made.config, how or How()), made.plan.notes


def _check_scales(found: Migrated, destination: Path) -> None:
    """A single file has no room for alpha: whoever reads it takes the rank."""
    if destination.suffix in SUFFIXES and not found.plain:
        raise UsageError(
            "a single file has no place for alpha, and the factors need one",
            where=destination,
            remedy="name a folder, which gets an adapter_config.json",
        )
