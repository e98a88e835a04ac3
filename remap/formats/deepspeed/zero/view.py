"""A DeepSpeed checkpoint with what ZeRO's files add to it: fp32 weights where they are asked for, the
optimizer's state, and a word on both."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from remap.errors import InputError
from remap.formats.deepspeed.zero.glance import departing
from remap.formats.deepspeed.zero.overlay import OPTIMIZER, keys_of, optimizer_state, overlay
from remap.formats.deepspeed.zero.run import Run, find_run
from remap.formats.ranks import catalog_of_ranks
from remap.types import Catalog, Entry, OptimizerState, rank_key

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
    tables = catalog.ranks or (catalog.entries,)
    runs = [run.of_rank(r, len(tables)) for r in range(len(tables))]
    said = _about(run, runs, tables, fp32)
    if fp32:
        new = [overlay(table, mine).entries for table, mine in zip(tables, runs, strict=True)]
        catalog = catalog_of_ranks(new, catalog)
    return describe(replace(catalog, warnings=(*catalog.warnings, *said)), run)


def describe(catalog: Catalog, run: Run) -> Catalog:
    """``catalog`` with the files of ``run`` among its own, and the optimizer's state."""
    lost = (WITHOUT_FROZEN,) if run.without_frozen else ()
    return replace(
        catalog,
        files=tuple(sorted({*catalog.files, *run.files})),
        warnings=(*catalog.warnings, *lost),
        opaque=tuple(sorted({*catalog.opaque, *run.opaque})),
        extras=tuple(dict.fromkeys([*catalog.extras, OPTIMIZER])),
        optimizer=partial(_state, run, catalog.ranks or (catalog.entries,)) if run.named else None,
        native=run,
    )


def _state(run: Run, tables: Sequence[Mapping[str, Entry]]) -> OptimizerState:
    """The state under the keys of the catalog's entries: those of the ranks, where there are several."""
    if len(tables) == 1:
        return optimizer_state(run, keys_of(run, tables[0]))
    states = []
    for rank, table in enumerate(tables):
        mine = run.of_rank(rank, len(tables))
        keys = keys_of(mine, table)
        states.append(optimizer_state(mine, {n: rank_key(k, rank) for n, k in keys.items()}))
    groups: list[dict[str, object]] = []
    for same in zip(*(s.groups for s in states), strict=True):
        groups.append({**same[0], "params": [k for g in same for k in g["params"]]})
    return OptimizerState(
        OPTIMIZER,
        {k: v for s in states for k, v in s.tensors.items()},
        {k: v for s in states for k, v in s.values.items()},
        groups,
        states[0].rest,
    )


def _about(run: Run, runs: Sequence[Run], tables: Sequence[Mapping[str, Entry]], fp32: bool) -> Iterator[str]:
    """What a user should know of the files; of those that are asked for, whether they are stale."""
    if not run.named:
        yield f"{run}; {STALE}"
        return
    odd: list[str] = []
    try:
        for mine, table in zip(runs, tables, strict=True):
            keys = keys_of(mine, table)
            odd += departing(table, {keys[n]: e for n, e in mine.everything.fp32.items()})
    except InputError as e:
        yield f"{len(run.files)} ZeRO files: {e.what}; {STALE}"
        return
    if not fp32:
        yield f"{run}: {TAKES}; {STALE}"
    if odd:
        some = f"{', '.join(odd[:3])}{', ...' * (len(odd) > 3)}"
        yield f"looked at, the model's weights are not those of the ZeRO files ({some}): one of them is stale"
