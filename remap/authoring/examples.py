"""A pack's examples -> what they show to be wrong. The engine of ``remap rules test``.

Each example is planned forward on a key list made of its ``given``; what comes out must be its ``expect``
and its ``dropped``, and then come back again. An example that ``fails`` must fail in that way.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from remap.authoring.findings import PackFinding
from remap.authoring.values import spec_of, wrong_values
from remap.errors import AlreadyConverted, PlanError, RemapError
from remap.packs.language.pack import Example, Pack
from remap.plan import Plan, make_plan
from remap.types import Catalog, Entry, TensorSpec

FAILURES: dict[str, type[RemapError]] = {"already-converted": AlreadyConverted, "plan": PlanError}
"""What ``fails:`` may say."""


def run_examples(pack: Pack) -> list[PackFinding]:
    """Run every example there and back. No findings: the pack does what it shows."""
    if not pack.examples:
        return [PackFinding("no-examples", "error", pack.file, 1, "the pack has no examples")]
    return [f for example in pack.examples for f in _run(pack, example)]


def catalog(given: Mapping[str, TensorSpec], config: Mapping[str, object]) -> Catalog:
    """A key list as a catalog."""
    entries = {key: Entry(key, spec) for key, spec in given.items()}
    return Catalog("keylist", Path("example"), (), entries, config=config)


def plan_example(pack: Pack, example: Example) -> Plan:
    """The plan of one example. Raises RemapError."""
    given = {key: spec_of(text) for key, text in example.given.items()}
    return make_plan(
        catalog(given, example.config), [pack], inverse=example.inverse, params=example.params, partial=True
    )


def _run(pack: Pack, example: Example) -> Iterator[PackFinding]:
    def finding(code: str, message: str) -> PackFinding:
        return PackFinding(code, "error", pack.file, example.line, message)

    if example.fails is not None and example.fails not in FAILURES:
        yield finding("unknown-failure", f"fails: is one of {', '.join(FAILURES)}, not {example.fails!r}")
        return
    try:
        plan = plan_example(pack, example)
    except RemapError as e:
        if example.fails is None or not isinstance(e, FAILURES[example.fails]):
            yield finding("example-fails", f"the example fails: {e}")
        return
    if example.fails is not None:
        yield finding("example-succeeds", f"the example should fail ({example.fails}) and does not")
        return
    if not (example.given or example.expect):
        yield finding("example-of-nothing", "nothing is given and nothing expected: it shows nothing")
    for message in differences(example, plan):
        yield finding("example-differs", message)
    try:
        for message in wrong_values(pack, example):
            yield finding("example-values", message)
    except RemapError as e:
        yield finding("example-fails", f"its values can't be computed: {e}")
    for message in _back(pack, example, plan):
        yield finding("example-does-not-return", message)


def differences(example: Example, plan: Plan) -> Iterator[str]:
    """In what the plan departs from what the example says, but for values: one line each."""
    found = {o.key: o.expr.spec for o in plan.outputs}
    wanted = {key: spec_of(text) for key, text in example.expect.items()}
    for key in wanted.keys() - found.keys():
        yield f"expected {key}, which is not there"
    for key in found.keys() - wanted.keys():
        yield f"found {key} {found[key]}, which is not expected"
    for key in found.keys() & wanted.keys():
        if found[key] != wanted[key]:
            yield f"{key} is {found[key]}; expected {wanted[key]}"
    drops = {d.key: d.rule for d in plan.drops}
    for key in sorted(drops.keys() | example.dropped.keys()):
        if drops.get(key) != example.dropped.get(key):
            by, said = drops.get(key), example.dropped.get(key)
            fate = f"{key} is dropped by rule {by}" if by else f"{key} is not dropped"
            right = (
                f"the example says dropped: {{{key}: {said}}}"
                if said
                else "the example has no dropped: for it"
            )
            yield f"{fate}; {right}"


def _back(pack: Pack, example: Example, plan: Plan) -> Iterator[str]:
    """What does not come back: everything must that was not dropped, if its rules have an inverse."""
    if not plan.outputs or any(r.lossy for r in pack.all_rules):
        return
    after = {o.key: o.expr.spec for o in plan.outputs}
    try:
        back = make_plan(
            catalog(after, example.config),
            [pack],
            inverse=not example.inverse,
            params=example.params,
            remembered={step.pack: step.params for step in plan.steps},
            partial=True,
        )
    except RemapError as e:
        yield f"the way back fails: {e}"
        return
    dropped = {d.key for d in plan.drops}
    wanted = {k: spec_of(t) for k, t in example.given.items() if k not in dropped}
    found = {o.key: o.expr.spec for o in back.outputs}
    # What was dropped may come back: a tied tensor does.
    for key in sorted(wanted.keys() | (found.keys() - dropped)):
        if wanted.get(key) != found.get(key):
            yield f"back again, {key} is {found.get(key)}; it was {wanted.get(key)}"
