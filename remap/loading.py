"""Loading a checkpoint into a model: does it fit, and if not, why? Then load it, or watch others do it.

audit       the checkpoint, renamed by packs, against what is to be loaded into
load_into   the same audit first, then tensor by tensor into a torch model
watch       the same audit of every load that others make
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from remap.audit import audit as run_audit
from remap.audits.baseline import read as read_baseline
from remap.audits.categories.custom import with_packs
from remap.audits.names.adapters import is_adapter
from remap.audits.names.masks import alike
from remap.audits.policy import Policy
from remap.audits.policy_file import load_policy
from remap.audits.report import Report
from remap.audits.suggest.asked import asked
from remap.audits.target import Target, open_target
from remap.checkpoint import Checkpoint
from remap.opening import Source, catalog
from remap.parallel import AS_FOUND, Settings
from remap.planning import Rules, load_packs, plan
from remap.types import Catalog, Entry

if TYPE_CHECKING:
    from torch import device as Device  # noqa: N812  # it is a class
    from torch.nn import Module

    from remap.integrations.watching.watch import Watch


def audit(
    source: Source,
    against: Source | Target | Module,
    rules: Rules = (),
    *,
    inverse: bool = False,
    params: Mapping[str, str] | None = None,
    dtype: str | None = None,
    again: Iterable[str] = (),
    at: str | None = None,
    settings: Settings = AS_FOUND,
    policy: str | Path | Policy | None = None,
    baseline: str | Path | None = None,
    values: bool = False,
    target_params: Mapping[str, str] | None = None,
) -> Report:
    """Does ``source`` load into ``against``, and if not, why?

    against   a checkpoint, a key list, a folder with a config.json only, ``package.module:function``
              or ``path.py:function`` that returns an nn.Module, a layout's name, an nn.Module (nothing is
              loaded into it), or a Target
    policy    a shipped one by name (strict, magma, lora, finetune-head), or a YAML file
    baseline  a file of known findings
    values    compare values, too, where both sides have them
    target_params  the layout's parameters

    The other arguments are those of ``plan``.
    """
    packs, again = [rules] if isinstance(rules, (str, Path)) else list(rules), tuple(again)
    found = catalog(source, at=at, settings=settings, params=params)
    made = None
    if packs or dtype:
        made = plan(
            found,
            packs,
            inverse=inverse,
            params=params,
            dtype=dtype,
            again=again,
            settings=settings,
            tolerant=True,
        )
    target = open_target(
        against.catalog if isinstance(against, Checkpoint) else against,
        offered=(Entry(o.key, o.expr.spec) for o in made.outputs) if made else found.entries.values(),
        config=found.config,
        params=target_params,
    )
    return run_audit(
        found,
        target if made else _expected(found, target),
        made,
        with_packs(load_policy(policy), load_packs(packs)),
        baseline=read_baseline(Path(baseline)) if baseline else None,
        values=values,
        options=asked(
            rules=packs,
            inverse=inverse,
            params=params,
            dtype=dtype,
            again=again,
            at=at,
            target_params=target_params,
            policy=policy,
        ),
    )


def _expected(found: Catalog, target: Target) -> Target:
    """What an adapter must have on a base, where ``found`` is one; what knows adapters is imported then."""
    if not any(is_adapter(several[0]) for several in alike(found.entries)):
        return target
    from remap.adapters.placing.expected import on_base

    return on_base(found, target)


def load_into(
    model: Module,
    source: Source,
    rules: Rules = (),
    *,
    policy: str | Path | Policy | None = None,
    baseline: str | Path | None = None,
    inverse: bool = False,
    params: Mapping[str, str] | None = None,
    again: Iterable[str] = (),
    at: str | None = None,
    dtype: str | None = None,
    assign: bool | None = None,
    device: str | Device | None = None,
) -> Report:
    """Load ``source`` into a torch model, renamed by ``rules``, if its audit passes the policy; else raise
    AuditFailed, the model untouched.

    dtype   None: types must agree. ``"model"``: floats are cast to the model's types. ``"checkpoint"``: the
            model takes the checkpoint's types. A type's name: floats are cast to it, the model takes that
    assign  True puts the checkpoint's tensors into the model, False copies into the model's memory. None
            assigns where the model's tensor is on the meta device or changes its type, and copies elsewhere
    device  where assigned tensors go; by default where the model's tensor is, the CPU for those on meta

    The other arguments are those of ``audit``. Gives its report.
    """
    found: Report = import_module("remap.integrations.torch_loading").load_into(
        model,
        source,
        rules,
        policy=policy,
        baseline=baseline,
        inverse=inverse,
        params=params,
        again=again,
        at=at,
        dtype=dtype,
        assign=assign,
        device=device,
    )
    return found


def watch(
    policy: str | Path | Policy | None = None,
    *,
    baseline: str | Path | None = None,
    at_once: bool = False,
    idle: bool = False,
    only_this_thread: bool = False,
) -> Watch:
    """A context manager that audits every load inside that is not strict: ``load_state_dict(strict=False)``
    of any module, DeepSpeed's ``load_state_dir`` and ``load_checkpoint``, transformers' ``from_pretrained``,
    PEFT's ``set_peft_model_state_dict``. Its ``reports`` has one for each.

    At the end of the block AuditFailed is raised, with every report, where the policy fails one of them.

    at_once           raise at the load instead, right after it was made
    idle              seeing no load at all is fine; it is an error else
    only_this_thread  loads of other threads are none of its business

    No library is imported by it; one that is imported inside is watched from then on.
    """
    found: Watch = import_module("remap.integrations.watching.watch").Watch(
        policy, baseline=baseline, at_once=at_once, idle=idle, only_this_thread=only_this_thread
    )
    return found
