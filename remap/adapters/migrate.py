"""An adapter for a base whose names changed, or in another library's words: ``remap adapter migrate``."""

from __future__ import annotations

from pathlib import Path

from remap.adapters.read import read
from remap.adapters.respelling.respell import TARGETS, respell
from remap.adapters.write import write_adapter
from remap.api import SUFFIXES, Source, catalog
from remap.errors import UsageError
from remap.output import How
from remap.receipt import Receipt


def migrate(
    source: Source,
    destination: str | Path,
    *,
    to: str,
    base: Source | None = None,
    component: str = "",
    others: str = "refuse",
    how: How | None = None,
) -> tuple[Receipt, tuple[str, ...]]:
    """Write the adapter at ``source`` in another dialect; the receipt, and what to know of it.

    to         peft, kohya, diffusers, magma or megatron
    base       the model that it was made for, where kohya's flattened names need it
    component  the part of a pipeline that it is for, where its keys name none: ``unet``, ``text_encoder``
    others     tensors in its file that are none of an adapter's: refuse, drop or keep

    Raises UsageError, InputError; nothing is written then.
    """
    if to not in TARGETS:
        raise UsageError(f"adapters are not written as {to!r}", remedy=f"use one of {', '.join(TARGETS)}")
    made = respell(
        read(source),
        to,
        folder=Path(destination).suffix not in SUFFIXES,
        base=None if base is None else catalog(base),
        component=component,
        others=others,
    )
    return write_adapter(made.plan, destination, made.config, how or How()), made.plan.notes
