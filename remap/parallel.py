"""Tensor parallelism in the flow: ranks' tables are merged before the plan, its outputs are split after it.

    whole(catalog, settings)        several ranks' catalog -> the model's, and the class of every key
    placed(plan, settings)          the class of every output
    spread(plan, ranks)             the model's plan -> every rank's tensors

A layout says how each key is divided: the one that is named, or the one that knows all of the keys. A key
that it does not know is refused, since whether ranks hold pieces or copies of it can't be seen. Through a
plan the class rides on the rules (``plan.Output.partition``); where the target's layout knows a key, that one
says it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from remap.errors import InputError, PlanError, RemapError, UsageError
from remap.expr import Expr, Take
from remap.formats.base import Format, Ranked, ReadOptions
from remap.packs import Layout, Pack, available_layouts, load_layout, recognised
from remap.packs.applying.params import Given
from remap.packs.division import Divided, divide
from remap.partitions.base import Copies, Merging, Partition
from remap.partitions.moments import merge_one, merge_state
from remap.partitions.vocabulary import Vocabulary
from remap.plan import Output, Plan
from remap.types import Catalog, Derived, Entry, OptimizerState, TensorSpec, rank_key

UNKNOWN = "whether ranks hold pieces or copies of them can't be told"


@dataclass(frozen=True)
class Settings:
    """What the user says of parallel checkpoints.

    layout      a layout's name or file, None to take the one that knows the keys
    params      values of layouts' parameters, by name
    remembered  what the source's receipt says of them
    copies      what replicated tensors that differ between ranks become
    padded      keep the vocabulary's padding
    partition   a file that says how metaseq's parts divide tensors with further names
    """

    layout: str | None = None
    params: Mapping[str, str] = field(default_factory=dict)
    remembered: Mapping[str, object] = field(default_factory=dict)
    copies: Copies = "error"
    padded: bool = False
    partition: Path | None = None

    @property
    def reading(self) -> ReadOptions:
        """What is said of formats that merge by themselves."""
        return ReadOptions(self.copies, self.partition)

    @property
    def told(self) -> dict[str, str]:
        """What a receipt is to remember of layouts' parameters: what it was told, and what one told it."""
        return {**{n: str(v) for n, v in self.remembered.items()}, **self.params}

    def given(self, layout: Layout, config: Mapping[str, object]) -> Given:
        """What is known of a layout's parameters beforehand."""
        return Given({n: v for n, v in self.params.items() if n in layout.params}, self.remembered, config)


AS_FOUND = Settings()
"""Nothing is said: layouts are recognised, copies agree."""


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


def spoken_of(catalog: Catalog, settings: Settings) -> frozenset[str]:
    """Parameters of the layout that a catalog of one rank has, where the user names some of them."""
    layout = _only_layout(catalog.entries, settings) if settings.params else None
    return frozenset(layout.params if layout else ())


def _only_layout(keys: Iterable[str], settings: Settings) -> Layout | None:
    if settings.layout is not None:
        return load_layout(settings.layout)
    found = recognised(keys)
    return found[0] if len(found) == 1 else None


def _unpadded(catalog: Catalog, settings: Settings) -> Catalog:
    """One rank's catalog with as many rows of its vocabulary as there are words, by a parameter of its
    layout."""
    layout = _only_layout(catalog.entries, settings) if settings.params and not settings.padded else None
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


class Problems:
    """What is wrong with many tensors, a line a reason."""

    def __init__(self) -> None:
        self._keys: dict[str, list[str]] = {}
        self.remedy: str | None = None

    def add(self, key: str, error: RemapError) -> None:
        """Note what is wrong with one of them."""
        self._keys.setdefault(error.what, []).append(key)
        self.remedy = self.remedy or error.remedy

    def __len__(self) -> int:
        return sum(map(len, self._keys.values()))

    @property
    def lines(self) -> list[str]:
        """Every reason, with the first key that it holds for."""
        return [f"{k[0]}{f' and {len(k) - 1} more' * (len(k) > 1)}: {what}" for what, k in self._keys.items()]


def classes(
    layout: Layout,
    tables: Sequence[Mapping[str, Entry]],
    config: Mapping[str, object],
    settings: Settings,
) -> Divided:
    """The class of every key by a layout. Raises InputError naming the keys that it does not know."""
    specs = [{k: e.spec for k, e in t.items()} for t in tables]
    divided = divide(layout, specs, settings.given(layout, config))
    unknown = [f"{k}: {s}" for k, s in specs[0].items() if k not in divided.classes]
    if unknown:
        raise InputError(
            f"{len(unknown)} tensors are no keys of {layout.name}: {UNKNOWN}",
            problems=unknown,
            remedy="name the layout that has them: --layout family/name, or a file",
        )
    return divided


def find_layout(keys: Iterable[str], settings: Settings, where: object = None) -> Layout:
    """The layout that is named, or the one that knows all the keys. Raises InputError for none or several."""
    if settings.layout is not None:
        return load_layout(settings.layout)
    found = recognised(keys)
    if len(found) == 1:
        return found[0]
    if found:
        raise InputError(
            "the keys are those of several layouts",
            where=where,
            problems=[layout.name for layout in found],
            remedy=f"say which: --layout {found[0].name}",
        )
    raise InputError(
        f"no layout knows these keys: {UNKNOWN}",
        where=where,
        problems=list(keys)[:10],
        remedy="write one that says how each is divided, and name it: --layout FILE.layout.yaml",
    )


def known(catalog: Catalog, settings: Settings) -> Catalog:
    """A catalog of one rank with the classes that a layout gives its keys, where one knows them all."""
    found = recognised(catalog.entries) if not catalog.ranks else []
    if len(found) != 1:
        return catalog
    return replace(catalog, partitions=classes_of(found[0], catalog, settings))


def classes_of(layout: Layout, catalog: Catalog, settings: Settings) -> Mapping[str, Partition]:
    """The class of every key of one rank that a layout knows."""
    specs = {k: e.spec for k, e in catalog.entries.items()}
    return divide(layout, [specs], settings.given(layout, catalog.config)).classes


@dataclass(frozen=True)
class Rider:
    """What has classes ride through a plan.

    params  names of the layouts' parameters
    """

    catalog: Catalog
    settings: Settings
    params: frozenset[str]

    def classes(self, layout: str, specs: Mapping[str, TensorSpec]) -> Mapping[str, Partition]:
        """What a layout says of the keys that it knows."""
        found = load_layout(layout)
        return divide(found, [specs], self.settings.given(found, self.catalog.config)).classes


def rider(catalog: Catalog, packs: Sequence[Pack], settings: Settings) -> Rider:
    """What makes classes ride through ``packs``."""
    layouts = [load_layout(n) for n in layouts_of(packs)]
    if settings.layout is not None:
        layouts.append(load_layout(settings.layout))
    else:
        mine = recognised(catalog.ranks[0] if catalog.ranks else catalog.entries)
        layouts += mine or map(load_layout, available_layouts())  # what is wrong is told where it matters
    return Rider(catalog, settings, frozenset(n for layout in layouts for n in layout.params))


def ranked(fmt: Format) -> Ranked:
    """The format as one that is written for several ranks and stages. Raises UsageError for others."""
    if not isinstance(fmt, Ranked):
        raise UsageError(
            f"{fmt.name} is not written by ranks or stages",
            remedy="leave out --tp and --pp, or write --to deepspeed-pipeline, deepspeed or megatron",
        )
    return fmt


def layouts_of(packs: Iterable[Pack]) -> list[str]:
    """The names of the layouts that packs lead from and to."""
    found = [n for p in packs for n in (p.source_layout, p.target_layout, *layouts_of(p.used)) if n]
    return list(dict.fromkeys(found))


def placed(plan: Plan, settings: Settings) -> Plan:
    """The plan with the class of every output: where none rode with it, what a layout says.

    Raises PlanError naming each output that is known to none.
    """
    left = [o for o in plan.outputs if o.partition is None]
    if not left:
        return plan
    every = {o.key: o.expr.spec for o in plan.outputs}
    known: Mapping[str, Partition] = {}
    if settings.layout is not None or len(recognised(every)) == 1:
        layout = find_layout(every, settings)
        known = divide(layout, [every], settings.given(layout, plan.catalog.config)).classes
    unknown = [f"{o.key}: {o.expr.spec}" for o in left if o.key not in known]
    if unknown:
        raise PlanError(
            f"{len(unknown)} tensors are known to no layout: {UNKNOWN}",
            problems=unknown,
            remedy="name a layout that has them (--layout), or say partition: on the rule",
        )
    outputs = [replace(o, partition=o.partition or known[o.key]) for o in plan.outputs]
    return replace(plan, outputs=tuple(outputs))


def spread(plan: Plan, ranks: int) -> list[dict[str, Expr]]:
    """Every rank's tensors of a plan whose outputs are ``placed``. Raises PlanError naming each tensor that
    can't be divided so, and why."""
    tables: list[dict[str, Expr]] = [{} for _ in range(ranks)]
    problems = Problems()
    for output in plan.outputs:
        assert output.partition is not None
        try:
            parts = output.partition.split(output.expr, ranks)
        except RemapError as e:
            problems.add(output.key, e)
            continue
        for table, part in zip(tables, parts, strict=True):
            table[output.key] = part
    if problems:
        what = f"{len(problems)} tensors can't be divided over {ranks} ranks"
        raise PlanError(what, problems=problems.lines, remedy=problems.remedy)
    return tables


def sizes(plan: Plan) -> dict[str, str]:
    """Sizes that dividing loses, by the parameters that would say them: the rows of a vocabulary that is
    padded, where its real size is not known."""
    return {
        o.partition.words.text: str(o.expr.spec.shape[0])
        for o in plan.outputs
        if isinstance(o.partition, Vocabulary) and o.partition.words.value is None
    }


def rank_plan(plan: Plan, tables: Sequence[Mapping[str, Expr]]) -> Plan:
    """The plan of what is written: an output for every tensor of every rank."""
    if len(tables) == 1:
        return replace(plan, outputs=tuple(replace(o, expr=tables[0][o.key]) for o in plan.outputs))
    outputs: list[Output] = [
        replace(o, key=rank_key(o.key, r), expr=table[o.key])
        for r, table in enumerate(tables)
        for o in plan.outputs
    ]
    return replace(plan, outputs=tuple(outputs))
