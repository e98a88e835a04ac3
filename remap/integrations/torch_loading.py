"""Loading a checkpoint into a model: rules, audit and policy first, then tensor by tensor.

    source ──> plan ──> audit against the model ──> policy ──> one tensor at a time into its place

Nothing of the model is touched unless the policy passes. ``torch_transfer`` moves the tensors then.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from remap import planning
from remap.audit import audit
from remap.audits.baseline import read as read_baseline
from remap.audits.categories.custom import with_packs
from remap.audits.policy import Policy
from remap.audits.policy_file import load_policy
from remap.audits.report import LOADED, Report
from remap.audits.target import Target
from remap.dtypes import DType
from remap.errors import UsageError
from remap.expr import Cast, Expr
from remap.integrations.torch_model import target_of
from remap.integrations.torch_places import check_whole
from remap.integrations.torch_transfer import Transfer
from remap.integrations.verdict import failure
from remap.plan import Plan
from remap.reports.collapse import collapse

if TYPE_CHECKING:
    import torch
    from torch import nn

    from remap.opening import Source


def load_into(
    model: nn.Module,
    source: Source,
    rules: Iterable[str | Path] = (),
    *,
    policy: str | Path | Policy | None = None,
    baseline: str | Path | None = None,
    inverse: bool = False,
    params: Mapping[str, str] | None = None,
    again: Iterable[str] = (),
    at: str | None = None,
    dtype: str | None = None,
    assign: bool | None = None,
    device: str | torch.device | None = None,
) -> Report:
    """Load ``source`` into ``model``, renamed by ``rules``, if the audit of it passes the policy.

    dtype   ``None``: types must agree. ``"model"``: floats are cast to the model's types.
            ``"checkpoint"``: the model takes the checkpoint's types. A type's name: floats are cast to it,
            and the model takes that.
    assign  True puts the checkpoint's tensors into the model, False copies into the model's own memory. None
            assigns where the model's tensor is on the meta device or changes its type, and copies elsewhere.
            An optimizer that was made before holds on to the tensors that were replaced.
    device  where assigned tensors go; by default where the model's tensor is, the CPU for those on meta

    The other arguments are those of ``audit``. Gives the report. Raises AuditFailed, which carries it, with
    the model untouched; UsageError where types differ and ``dtype`` does not say what is to be done, or where
    the model's tensors are not whole (ZeRO-3, FSDP1). Of a DTensor (FSDP2) each rank keeps its part: all
    ranks load.
    """
    check_whole(model)
    plan, report, loaded = examine(
        target_of(model),
        source,
        rules,
        policy=policy,
        baseline=baseline,
        inverse=inverse,
        params=params,
        again=again,
        at=at,
        dtype=dtype,
    )
    if not report.passed:
        raise failure([report], "nothing was loaded")
    return Transfer(model, plan.catalog, loaded, assign, device).run(report)


def examine(
    target: Target,
    source: Source,
    rules: Iterable[str | Path],
    *,
    policy: str | Path | Policy | None,
    baseline: str | Path | None = None,
    inverse: bool = False,
    params: Mapping[str, str] | None = None,
    again: Iterable[str] = (),
    at: str | None = None,
    dtype: str | None = None,
) -> tuple[Plan, Report, dict[str, Expr]]:
    """The plan, the audit's report, and what is to be loaded: key of the model -> expression.

    Headers only. Raises UsageError where the policy passes, but types differ and ``dtype`` does not say what
    is to be done.
    """
    named = None if dtype in (None, "model", "checkpoint") else dtype
    names = (rules,) if isinstance(rules, (str, Path)) else tuple(rules)
    packs = planning.load_packs(names)
    plan = planning.plan(
        source, names, inverse=inverse, params=params, dtype=named, again=again, at=at, tolerant=True
    )
    if dtype == "model":
        plan = _cast_to(plan, target)
    elif dtype is not None:
        target = _retyped(target, plan)
    identity = not packs and plan.cast is None and dtype != "model"
    known = read_baseline(Path(baseline)) if baseline else None
    report = audit(
        plan.catalog,
        target,
        None if identity else plan,
        with_packs(load_policy(policy), packs),
        baseline=known,
    )
    takes = {f.key for f in report.findings if f.category in LOADED}
    loaded = {o.key: o.expr for o in plan.outputs if o.key in takes}
    if report.passed:
        _check_types(report, target, loaded)
    return plan, _note_of_unfit(report, plan, target, takes), loaded


def _cast_to(plan: Plan, target: Target) -> Plan:
    """The plan with tensors cast to the target's types, where that loses no more than precision."""

    def fitted(key: str, expr: Expr) -> Expr:
        wanted = target.specs.get(key)
        cast = (
            wanted is not None
            and wanted.dtype != expr.spec.dtype
            and _castable(expr.spec.dtype, wanted.dtype)
        )
        return Cast(expr, wanted.dtype) if wanted is not None and cast else expr

    return replace(plan, outputs=tuple(replace(o, expr=fitted(o.key, o.expr)) for o in plan.outputs))


def _retyped(target: Target, plan: Plan) -> Target:
    """The target with the types that the plan gives."""
    given = {o.key: o.expr.spec.dtype for o in plan.outputs}
    specs = {
        k: replace(s, dtype=given[k]) if k in given and _castable(given[k], s.dtype) else s
        for k, s in target.specs.items()
    }
    return replace(target, specs=specs)


def _castable(given: DType, wanted: DType) -> bool:
    """Floats to floats, but fp8, whose numbers need scales; integers to wider ones; bytes to masks."""
    if given.is_float and wanted.is_float:
        return 1 not in (given.itemsize, wanted.itemsize)
    if {given.name, wanted.name} == {"uint8", "bool"}:
        return True
    integers = all("int" in t.name for t in (given, wanted))
    return integers and given.itemsize < wanted.itemsize


def _note_of_unfit(report: Report, plan: Plan, target: Target, takes: Collection[str]) -> Report:
    """The report, saying what both sides have and is not loaded though the policy passes."""
    unfit = [o.key for o in plan.outputs if o.key in target.specs and o.key not in takes]
    if not unfit:
        return report
    names = ", ".join(line.cells[0] for line in collapse((k,) for k in unfit))
    note = f"{len(unfit)} tensors that both have do not fit, and are not loaded: {names}"
    return replace(report, notes=(*report.notes, note))


def _check_types(report: Report, target: Target, loaded: Mapping[str, Expr]) -> None:
    odd = [
        (k, f"{e.spec}, the model has {target.specs[k]}")
        for k, e in loaded.items()
        if e.spec.dtype != target.specs[k].dtype
    ]
    if odd:
        raise UsageError(
            f"nothing was loaded: {len(odd)} tensors are of another type than the model's",
            where=report.source,
            problems=[f"{line.count} x {': '.join(line.cells)}" for line in collapse(odd)],
            remedy='dtype="model" casts to the model\'s types, dtype="checkpoint" gives the model the '
            "checkpoint's; integers and floats are never made of each other",
        )
