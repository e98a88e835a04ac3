"""Tensor parallelism in the flow: ranks' tables are merged before the plan, the plan's outputs are split after it.

    whole(catalog, settings)        several ranks' catalog -> the model's, and the class of every key
    spread(plan, settings, ranks)   the model's plan -> every rank's tensors

A layout says how each key is divided: the one that is named, or the one that knows all of the keys. A key
that it does not know is refused, since whether ranks hold pieces or copies of it can't be seen. Through a
plan the class rides on the rules (``plan.Output.partition``); where the target's layout knows a key, that one
says it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from remap.errors import InputError, PlanError, RemapError, UsageError
from remap.expr import Expr, Take
from remap.packs import Layout, Pack, available_layouts, load_layout
from remap.packs.applying.params import Given
from remap.packs.division import Divided, divide
from remap.packs.matching.keyset import KeySet
from remap.partitions.base import Copies, Merging, Partition
from remap.plan import Output, Plan
from remap.types import Catalog, Derived, Entry, TensorSpec, rank_key

UNKNOWN = "whether ranks hold pieces or copies of them can't be told"


@dataclass(frozen=True)
class Settings:
    """What the user says of parallel checkpoints.

    layout      a layout's name or file, None to take the one that knows the keys
    params      values of layouts' parameters, by name
    remembered  what the source's receipt says of them
    copies      what replicated tensors that differ between ranks become
    padded      keep the vocabulary's padding
    """

    layout: str | None = None
    params: Mapping[str, str] = field(default_factory=dict)
    remembered: Mapping[str, object] = field(default_factory=dict)
    copies: Copies = "error"
    padded: bool = False

    def given(self, layout: Layout, config: Mapping[str, object]) -> Given:
        """What is known of a layout's parameters beforehand."""
        return Given({n: v for n, v in self.params.items() if n in layout.params}, self.remembered, config)


def whole(catalog: Catalog, settings: Settings) -> Catalog:
    """The catalog of the model whose ranks ``catalog`` has; itself where it has one rank.

    Raises InputError for keys that no layout knows, and for parts that can't be put together.
    """
    if not catalog.ranks or catalog.partitions:
        return catalog
    layout = find_layout(catalog.ranks[0], settings, catalog.root)
    divided = classes(layout, catalog.ranks, catalog.config, settings)
    how = Merging(settings.copies, settings.padded)
    made: dict[tuple[object, ...], Expr] = {}
    entries: dict[str, Entry] = {}
    problems: list[str] = []
    for key, cls in divided.classes.items():
        parts = [table[key] for table in catalog.ranks]
        place = tuple(p.location or id(p) for p in parts)
        try:
            if place not in made:
                made[place] = _merged(parts, cls, how)
        except UsageError as e:
            problems.append(_problem(key, e))
            continue
        entries[key] = _entry(key, made[place])
    if problems:
        raise InputError(
            f"{len(problems)} tensors of {len(catalog.ranks)} ranks can't be put together",
            where=catalog.root,
            problems=problems,
        )
    return replace(catalog, entries=entries, partitions=divided.classes)


def _merged(parts: Sequence[Entry], cls: Partition, how: Merging) -> Expr:
    if len({p.spec for p in parts}) > 1:
        raise UsageError(f"ranks hold different shapes: {', '.join(str(p.spec) for p in parts)}")
    return cls.merge([Take(p) for p in parts], how)


def _entry(key: str, expr: Expr) -> Entry:
    place = expr.entry.location if isinstance(expr, Take) else Derived(expr)
    return Entry(key, expr.spec, place)


def _problem(key: str, error: UsageError) -> str:
    return f"{key}: {error.what}" + (f" ({error.remedy})" if error.remedy else "")


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


def recognised(keys: Iterable[str]) -> list[Layout]:
    """The layouts that know all of the keys."""
    samples = [group.key for group in KeySet(keys).groups.values()]
    layouts = (load_layout(name) for name in available_layouts())
    return [layout for layout in layouts if all(map(layout.knows, samples))]


def layouts_of(packs: Iterable[Pack]) -> list[str]:
    """The names of the layouts that packs lead from and to."""
    found = [n for p in packs for n in (p.source_layout, p.target_layout, *layouts_of(p.used)) if n]
    return list(dict.fromkeys(found))


def spread(plan: Plan, ranks: int, settings: Settings) -> list[dict[str, Expr]]:
    """Every rank's tensors. Raises PlanError naming each tensor that can't be divided so, and why."""
    by_layout = _by_layout(plan, settings)
    tables: list[dict[str, Expr]] = [{} for _ in range(ranks)]
    problems: list[str] = []
    unknown: list[str] = []
    for output in plan.outputs:
        cls = output.partition or by_layout.get(output.key)
        if cls is None:
            unknown.append(f"{output.key}: {output.expr.spec}")
            continue
        try:
            parts = cls.split(output.expr, ranks)
        except RemapError as e:
            problems.append(_problem(output.key, e) if isinstance(e, UsageError) else f"{output.key}: {e.what}")
            continue
        for table, part in zip(tables, parts, strict=True):
            table[output.key] = part
    if unknown:
        raise PlanError(
            f"{len(unknown)} tensors are known to no layout: how {ranks} ranks divide them can't be told",
            problems=unknown,
            remedy="name a layout that has them: --layout family/name, or a file; or say it on the rule, partition:",
        )
    if problems:
        raise PlanError(f"{len(problems)} tensors can't be divided over {ranks} ranks", problems=problems)
    return tables


def _by_layout(plan: Plan, settings: Settings) -> Mapping[str, Partition]:
    """What a layout says of outputs that no class rode with: none did where there were no packs."""
    left = {o.key: Entry(o.key, o.expr.spec) for o in plan.outputs if o.partition is None}
    if not left:
        return {}
    every = {o.key: Entry(o.key, o.expr.spec) for o in plan.outputs}
    if settings.layout is None and len(recognised(every)) != 1:
        return {}
    layout = find_layout(every, settings)
    specs: Mapping[str, TensorSpec] = {k: e.spec for k, e in every.items()}
    return divide(layout, [specs], settings.given(layout, plan.catalog.config)).classes


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
