"""The model's plan -> every rank's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from remap.errors import PlanError, RemapError, UsageError
from remap.expr import Expr
from remap.formats.base import Format, Ranked
from remap.packs import recognised
from remap.packs.division import divide
from remap.parallel.layouts import UNKNOWN, find_layout
from remap.parallel.problems import Problems
from remap.parallel.settings import Settings
from remap.partitions.base import Partition
from remap.partitions.vocabulary import Vocabulary
from remap.plan import Output, Plan
from remap.types import rank_key


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


def ranked(fmt: Format) -> Ranked:
    """The format as one that is written for several ranks and stages. Raises UsageError for others."""
    if not isinstance(fmt, Ranked):
        raise UsageError(
            f"{fmt.name} is not written by ranks or stages",
            remedy="leave out --tp and --pp, or write --to deepspeed-pipeline, deepspeed or megatron",
        )
    return fmt
