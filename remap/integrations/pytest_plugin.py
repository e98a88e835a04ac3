"""Fixtures for tests of training code: does a checkpoint load, and is every load that is not strict fine?

    def test_the_checkpoint_fits(audit_load):
        audit_load(build_model(), "keys/pythia.json", rules=["magma/from-hf"], policy="magma")

    def test_setup_leaves_nothing_random(watch_loads):
        with watch_loads(policy="magma"):
            Trainer(config).setup()

pytest finds this by the entry point ``pytest11``. It is imported in every run of pytest wherever remap is
installed, so it imports nothing but pytest until a fixture is used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pytest

if TYPE_CHECKING:
    from torch import nn

    from remap.audits.policy import Policy
    from remap.audits.report import Report
    from remap.audits.target import Target
    from remap.integrations.watching.watch import Watch
    from remap.opening import Source


class AuditLoad(Protocol):
    """What ``audit_load`` is."""

    def __call__(
        self,
        model: nn.Module | Source | Target,
        checkpoint: Source,
        rules: Iterable[str | Path] = (),
        *,
        policy: str | Path | Policy | None = None,
        baseline: str | Path | None = None,
        inverse: bool = False,
        params: Mapping[str, str] | None = None,
        dtype: str | None = None,
    ) -> Report: ...


@pytest.fixture(scope="session")
def audit_load() -> AuditLoad:
    """A function that fails the test, with the audit's report, unless a checkpoint loads into a model up to
    the policy.

    The model is an ``nn.Module`` (nothing is loaded into it), or anything that ``remap.audit`` takes as its
    target: a key list, ``package.module:function``. The checkpoint may be a key list, too, so that a test
    needs no weights. Gives the report.
    """

    def audit_load(model: Any, checkpoint: Any, rules: Any = (), **how: Any) -> Report:
        __tracebackhide__ = True
        import remap
        from remap.reports.registry import render

        report = remap.audit(checkpoint, model, rules, **how)
        if not report.passed:
            pytest.fail(render(report, "text"), pytrace=False)
        return report

    return audit_load


@pytest.fixture(scope="session")
def watch_loads() -> Callable[..., Watch]:
    """``remap.watch``: a test fails where a load inside of the block is not strict up to the policy."""
    import remap

    return remap.watch
