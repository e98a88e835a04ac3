"""Do a pack's examples show in which order elements lie? A wrong order has the right shape, and comes back.

A rule that reorders needs an example with values, and one that tells its order from others of the same shape:
a head of four rows, say, is turned into the same rows both ways. So the wrong orders are tried.

    order_findings(pack) -> findings ``reorder-without-values`` and ``order-not-shown``
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import permutations
from typing import Any

from remap.authoring.examples import differences, plan_example
from remap.authoring.findings import PackFinding
from remap.authoring.values import has_values, wrong_values
from remap.errors import RemapError
from remap.ops.arithmetic import Num
from remap.ops.base import Op
from remap.ops.elements.rotary import RotaryOp
from remap.ops.parts.concat import ConcatOp, SplitOp
from remap.ops.parts.interleave import DeinterleaveOp, InterleaveOp
from remap.ops.parts.qkv import FuseQkvOp, QkvLayout, SplitQkvOp
from remap.packs.language.pack import LIST, Example, Pack, Rule, RuleStage

REORDERING = frozenset(
    (
        "concat",
        "deinterleave",
        "fuse_qkv",
        "interleave",
        "permute",
        "rotary",
        "split",
        "split_qkv",
        "transpose",
    )
)
"""Ops that put elements in another order, or could in a wrong one."""
LISTED = frozenset(("stack", "unstack"))
"""Ops that do if their parts are a list. Those of a capture are in the order of its numbers."""

Wrong = tuple[str, Rule]
"""In words, and the rule that does it so."""


def order_findings(pack: Pack) -> Iterator[PackFinding]:
    """What the examples leave open."""
    shown = list(_shown(pack))
    for rule in pack.own_rules:
        reorders = [o.name for o in rule.ops if o.name in REORDERING or (o.name in LISTED and not o.over)]
        mine = [example for example, fired in shown if rule.id in fired]
        if not reorders:
            continue
        if not mine:
            message = f"rule {rule.id}: {reorders[0]} needs an example with values"
            yield PackFinding("reorder-without-values", "error", pack.file, rule.line, message)
            continue
        for what, wrong in _wrong(rule):
            if not any(_tells(_instead(pack, rule, wrong), example) for example in mine):
                message = (
                    f"rule {rule.id}: its examples give the same values {what}; give more rows, all different"
                )
                yield PackFinding("order-not-shown", "error", pack.file, rule.line, message)
                break


def _shown(pack: Pack) -> Iterator[tuple[Example, frozenset[str]]]:
    """The examples with values, and the rules that each shows."""
    for example in pack.examples:
        if example.fails is None and has_values(example.given) and has_values(example.expect):
            try:
                plan = plan_example(pack, example)
            except RemapError:
                continue
            valued = [o for o in plan.outputs if "=" in example.expect.get(o.key, "")]
            yield example, frozenset(r for o in valued for r in o.rule.split(" > "))


def _instead(pack: Pack, rule: Rule, wrong: Rule) -> Pack:
    stages = (
        replace(s, rules=tuple(wrong if r is rule else r for r in s.rules)) if isinstance(s, RuleStage) else s
        for s in pack.stages
    )
    return replace(pack, stages=tuple(stages))


def _tells(pack: Pack, example: Example) -> bool:
    """Does the example fail with the wrong pack?"""
    try:
        return any(differences(example, plan_example(pack, example))) or any(wrong_values(pack, example))
    except RemapError:
        return True


def _wrong(rule: Rule) -> Iterator[Wrong]:
    """Rules that make tensors of the same shape in other orders, where shapes allow it."""
    for n, op in enumerate(rule.ops):
        for what, other in _other(op):
            yield what, replace(rule, ops=(*rule.ops[:n], *other, *rule.ops[n + 1 :]))
    if any(o.name not in ("fuse_qkv", "split_qkv", "tie", "untie", "sum", "divide") for o in rule.ops):
        before, after = rule.axes
        for sources in _swapped(rule.sources) if LIST in before else ():
            yield "with the parts of from: in another order", replace(rule, sources=sources)
        for targets in _swapped(rule.targets) if LIST in after else ():
            yield "with the parts of to: in another order", replace(rule, targets=targets)


def _swapped(several: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    """Every two that follow one another exchanged."""
    for n in range(len(several) - 1):
        yield (*several[:n], several[n + 1], several[n], *several[n + 2 :])


def _other(op: Op) -> Iterator[tuple[str, tuple[Op, ...]]]:
    """What could stand in the op's place."""
    if isinstance(op, RotaryOp):
        yield "with rows turned the other way", (op.inverse(),)
    if op.name in ("rotary", "permute", "transpose"):
        yield f"without {op.name}", ()
    elif isinstance(op, ConcatOp):
        yield "with parts by turns", (InterleaveOp(op.dim, op.over, op.parts),)
    elif isinstance(op, SplitOp):
        yield "with parts by turns", (DeinterleaveOp(op.dim, op.over, op.parts),)
    elif isinstance(op, InterleaveOp):
        yield "with parts one after the other", (ConcatOp(op.dim, op.over, None, op.parts),)
    elif isinstance(op, DeinterleaveOp):
        yield "with parts one after the other", (SplitOp(op.dim, op.over, None, op.parts),)
    elif isinstance(op, (FuseQkvOp, SplitQkvOp)):
        for what, how in _layouts(op.how):
            yield what, (replace(op, how=how),)


def _layouts(how: QkvLayout) -> Iterator[tuple[str, QkvLayout]]:
    """The other layouts of one shape: query, key and value take turns otherwise, or in another order."""
    turns = {"blocks": Num(1), "groups": how.kv_heads, "shares": how.heads}
    mine = turns.get(how.layout, how.heads)
    for layout, other in turns.items():
        if other != mine:
            yield f"with the layout {layout}", replace(how, layout=layout)
    for order in permutations(how.order):
        if order != how.order:
            yield f"with the order {', '.join(order)}", replace(how, order=order)
