"""Several ranks' catalog -> the model's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from remap.errors import InputError, UsageError
from remap.expr import Expr, Take
from remap.parallel.layouts import classes, classes_of, find_layout, only_layout
from remap.parallel.problems import Problems
from remap.parallel.settings import Settings
from remap.partitions.base import Merging, Partition
from remap.partitions.moments import merge_one, merge_state
from remap.partitions.vocabulary import Vocabulary
from remap.types import Catalog, Derived, Entry, OptimizerState


def whole(catalog: Catalog, settings: Settings) -> Catalog:
    """The catalog of the model whose ranks ``catalog`` has. One rank's is itself, without the vocabulary's
    padding where the user says how many words there are.

    Raises InputError for keys that no layout knows, and for parts that can't be put together.
    """
    if catalog.partitions:
        return catalog
    if not catalog.ranks:
        return _unpadded(catalog, settings)
    layout = find_layout(catalog.ranks[0], settings, catalog.root)
    divided = classes(layout, catalog.ranks, catalog.config, settings)
    how = Merging(settings.copies, settings.padded)
    made: dict[tuple[object, ...], Expr] = {}
    entries: dict[str, Entry] = {}
    problems = Problems()
    for key, cls in divided.classes.items():
        parts = [table[key] for table in catalog.ranks]
        place = tuple(p.location or id(p) for p in parts)
        try:
            if place not in made:
                made[place] = _merged(parts, cls, how)
        except UsageError as e:
            problems.add(key, e)
            continue
        entries[key] = _entry(key, made[place])
    if problems:
        what = f"{len(problems)} tensors of {len(catalog.ranks)} ranks can't be put together"
        raise InputError(what, where=catalog.root, problems=problems.lines, remedy=problems.remedy)
    state = partial(_state, catalog, divided.classes, how) if catalog.optimizer else None
    return replace(catalog, entries=entries, partitions=divided.classes, optimizer=state)


def _unpadded(catalog: Catalog, settings: Settings) -> Catalog:
    """One rank's catalog with as many rows of its vocabulary as there are words, by a parameter of its
    layout."""
    layout = only_layout(catalog.entries, settings) if settings.params and not settings.padded else None
    if layout is None or layout.params.keys().isdisjoint(settings.params):
        return catalog
    classes = classes_of(layout, catalog, settings)
    padded = {
        k: cls
        for k, cls in classes.items()
        if isinstance(cls, Vocabulary) and cls.words.text in settings.params
    }
    if not padded:
        return catalog
    how = Merging(settings.copies)
    try:
        made = {k: _entry(k, cls.merge([Take(catalog.entries[k])], how)) for k, cls in padded.items()}
    except UsageError as e:
        raise InputError(e.what, where=catalog.root, remedy=e.remedy) from None
    state = partial(_state_of_one, catalog, padded, how) if catalog.optimizer else None
    return replace(catalog, entries={**catalog.entries, **made}, partitions=classes, optimizer=state)


def _state_of_one(catalog: Catalog, classes: Mapping[str, Partition], how: Merging) -> OptimizerState | None:
    assert catalog.optimizer is not None
    state = catalog.optimizer()
    return merge_one(state, classes, how) if state else None


def _state(catalog: Catalog, classes: Mapping[str, Partition], how: Merging) -> OptimizerState | None:
    assert catalog.optimizer is not None
    state = catalog.optimizer()
    return merge_state(state, classes, len(catalog.ranks), how) if state else None


def _merged(parts: Sequence[Entry], cls: Partition, how: Merging) -> Expr:
    if len({p.spec for p in parts}) > 1:
        raise UsageError(f"ranks hold different shapes: {', '.join(str(p.spec) for p in parts)}")
    return cls.merge([Take(p) for p in parts], how)


def _entry(key: str, expr: Expr) -> Entry:
    place = expr.entry.location if isinstance(expr, Take) else Derived(expr)
    return Entry(key, expr.spec, place)
