"""A DeepSpeed checkpoint with what ZeRO's files add to it: fp32 weights where they are asked for, the
optimizer's state, and a word on both."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from remap.errors import InputError
from remap.formats.deepspeed.zero.overlay import OPTIMIZER, keys_of, optimizer_state, overlay
from remap.formats.deepspeed.zero.run import Run, find_run
from remap.types import Catalog, Entry, OptimizerState

TAKES = "--weights zero takes them"
STALE = (
    "beside changed weights they bring the old ones back at the first step: they are left behind, or written "
    "anew with --to deepspeed-universal"
)

WITHOUT_FROZEN = "saved with exclude_frozen_parameters: frozen weights, if the model has any, are in no file"


def with_zero(catalog: Catalog, *, fp32: bool) -> Catalog:
    """``catalog``, of the model as it was trained, with what lies in its folder of ZeRO.

    fp32  True for ZeRO's fp32 weights in the place of those of the model

    Raises InputError: damaged files, or none where they are asked for.
    """
    run = find_run(catalog.root)
    if run is None and fp32:
        raise InputError(
            "no ZeRO files are here, so there are no other weights than the model's",
            where=catalog.root,
            remedy="leave out --weights zero",
        )
    if run is None:
        return catalog
    entries = overlay(catalog.entries, run).entries if fp32 else catalog.entries
    said = [] if fp32 else [_about(run, catalog.entries)]
    return describe(replace(catalog, entries=entries, warnings=(*catalog.warnings, *said)), run)


def describe(catalog: Catalog, run: Run) -> Catalog:
    """``catalog`` with the files of ``run`` among its own, and the optimizer's state."""
    lost = (WITHOUT_FROZEN,) if run.without_frozen else ()
    return replace(
        catalog,
        files=tuple(sorted({*catalog.files, *run.files})),
        warnings=(*catalog.warnings, *lost),
        opaque=tuple(sorted({*catalog.opaque, *run.opaque})),
        extras=tuple(dict.fromkeys([*catalog.extras, OPTIMIZER])),
        optimizer=partial(_state, run, catalog.entries) if run.named else None,
        native=run,
    )


def _state(run: Run, entries: Mapping[str, Entry]) -> OptimizerState:
    return optimizer_state(run, keys_of(run, entries))


def _about(run: Run, entries: Mapping[str, Entry]) -> str:
    if not run.named:
        return f"{run}; {STALE}"
    try:
        keys_of(run, entries)
    except InputError as e:
        return f"{len(run.files)} ZeRO files: {e.what}; {STALE}"
    return f"{run}: {TAKES}; {STALE}"
