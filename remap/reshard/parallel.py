"""Runs of DeepSpeed, cut anew: other tensor-parallel ranks, other pipeline stages.

Stages need no tensor to be moved: layer files are as they were, and only the rank files are others. Other
ranks are merged and divided by a layout's classes; the padding of the vocabulary is kept where it is enough.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import remap.receipt as receipts
from remap import parallel
from remap.comparing.copies import check_copies
from remap.errors import UsageError
from remap.expr import Cast, Expr, Take
from remap.formats import registry
from remap.formats.base import WriteOptions
from remap.formats.companions import carried
from remap.opening import told
from remap.output import How, What, reopened, write_output
from remap.plan import Output, Plan, make_plan
from remap.receipt import Parallel, Receipt
from remap.reshard.wanted import Wanted
from remap.types import Catalog


def recut(root: Path, path: Path, wanted: Wanted, how: How) -> Receipt:
    """Write the run at ``root`` for other ranks or stages at ``path``. Raises InputError, UsageError,
    PlanError."""
    _check(wanted)
    found = registry.open_catalog(root)
    settings = told(wanted.settings, wanted.settings.params, receipts.find(found))
    settings = replace(settings, padded=True)
    ranks = wanted.tp or max(len(found.ranks), 1)
    sizes: dict[str, str] = {}
    if ranks == max(len(found.ranks), 1):
        plan, tables = _as_they_lie(found)
    else:
        plan = parallel.placed(make_plan(parallel.whole(found, settings), ()), settings)
        tables = parallel.spread(plan, ranks)
        sizes = parallel.sizes(plan)
    tables = [{k: _cast(e, wanted) for k, e in table.items()} for table in tables]
    fmt = registry.get(found.format)
    options = WriteOptions(stages=wanted.pp, optimizer=wanted.optimizer)
    new = parallel.ranked(fmt).lay_out_ranks(tables, plan.catalog, options)
    what = What(
        format=fmt.name,
        files=[*carried(found.companions, wanted.dtype), *new],
        single=False,
        left=list(dict.fromkeys(n for f in new for n in f.left)),
        notes=check_copies(plan.catalog, settings.copies),
        parallel=Parallel(
            ranks, wanted.pp, settings.layout, {**sizes, **settings.told}, settings.copies, padded=True
        ),
    )

    return write_output(parallel.rank_plan(plan, tables), what, path, how, partial(reopened, fmt))


def _check(wanted: Wanted) -> None:
    asked = {
        "--fsdp": wanted.fsdp is not None,
        "--unflatten": wanted.unflatten,
        "--optimizer-dtype": wanted.optimizer_dtype is not None,
    }
    wrong = [name for name, said in asked.items() if said]
    if wrong:
        raise UsageError(f"{', '.join(wrong)}: not of a run of DeepSpeed", remedy="say --tp, --pp, --dtype")


def _as_they_lie(found: Catalog) -> tuple[Plan, Sequence[Mapping[str, Expr]]]:
    """The ranks' own tables; nothing need be known of how they divide the model."""
    tables = [{k: Take(e) for k, e in table.items()} for table in found.ranks or (found.entries,)]
    outputs = [Output(k, e, "", (k,), "copy") for k, e in tables[0].items()]
    return Plan(found, tuple(outputs)), tables


def _cast(expr: Expr, wanted: Wanted) -> Expr:
    kind = wanted.dtype
    cast = kind is not None and expr.spec.dtype.is_float and expr.spec.dtype != kind
    return Cast(expr, kind) if cast and kind is not None else expr
