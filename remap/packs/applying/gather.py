"""Keys of rules with ops -> the tensors that they make.

Keys that agree in the captures which both sides share are one instance of the rule. Its parts lie in a
grid: an axis for the templates of the list, one for every capture that stands on one side only, counted
from 0 and complete. The ops are applied in order; the axes that remain are the targets'.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

from remap.errors import PackError, PlanError, RemapError, UsageError
from remap.expr import Expr
from remap.ops.base import Op, Scope
from remap.packs.applying.stage import Claimed, Outcome
from remap.packs.applying.trouble import Troubles
from remap.packs.language.pack import LIST, Axis, Pack, Rule
from remap.packs.language.template import Template
from remap.packs.matching.keyset import Rows
from remap.packs.matching.matcher import Hit
from remap.packs.matching.owners import Bound
from remap.packs.matching.rendering import write

SHOWN = 10
"""How many missing members of an axis are named."""
Cell = tuple[int, ...]
Grid = dict[Cell, Expr]


@dataclass(frozen=True, slots=True)
class Made:
    """A tensor that ops made; ``place`` is that of its first source."""

    place: int
    key: str
    expr: Expr
    rule: Rule


@dataclass
class _Instance:
    bound: Bound
    shared: dict[str, str]
    cells: dict[Cell, Claimed] = field(default_factory=dict)


def check_axes(rule: Rule) -> None:
    """Raise PackError where the ops don't lead from the axes of ``from`` to those of ``to``."""
    _same_captures(rule)
    now, wanted = map(list, rule.axes)
    for op in rule.ops:
        axis = op.over or LIST
        label = f"the capture {axis!r}" if axis else "the list of templates"
        if op.shape == "join":
            if axis not in now:
                raise PackError(f"{op.name} joins over {label}, which from has not on its own")
            now.remove(axis)
        elif op.shape == "cut":
            if axis in now:
                raise PackError(f"{op.name} cuts over {label}, along which there are parts already")
            now.append(axis)
    if sorted(now) != sorted(wanted):
        raise PackError(
            f"after do: there are parts along {_named(now)}; to has {_named(wanted)}",
            remedy="join or cut them, or write the capture on both sides",
        )


def _same_captures(rule: Rule) -> None:
    """Raise PackError where the templates of a side differ in their captures, or an axis is no number."""
    sources = [s for s in rule.sources if isinstance(s, Template)]
    for side in (sources, rule.targets):
        for template in side:
            if template.captures.keys() != side[0].captures.keys():
                raise PackError(f"{side[0].text!r} and {template.text!r} capture different things")
    captures = {n: c for t in (*sources, *rule.targets) for n, c in t.captures.items()}
    for axis in (a for several in rule.axes for a in several if a != LIST):
        if captures[axis].kind != "int":
            raise PackError(f"{axis!r} stands on one side only and is no number", remedy=f"{{{axis}:int}}")


def _named(found: Sequence[Axis]) -> str:
    return ", ".join("the list" if a == LIST else a for a in found) or "nothing"


def gather(
    pack: Pack,
    outcome: Outcome,
    exprs: Sequence[Expr],
    sizes: Mapping[str, int],
    troubles: Troubles | None = None,
) -> list[Made]:
    """Build the tensors. ``exprs`` are those of the stage's keys. Raises PlanError with all problems;
    where ``troubles`` are tolerant, they get them, and what can't be built is left out."""
    done: list[Made] = []
    problems: list[str] = []
    for instance in _instances(outcome.claimed):
        keys = outcome.keys.keys
        try:
            _build(instance, exprs, sizes, done)
        except RemapError as e:
            some = [keys[c.place] for c in list(instance.cells.values())[:3]]
            more = f" and {len(instance.cells) - 3} more" if len(instance.cells) > 3 else ""
            problems.append(f"{pack.place(instance.bound.rule)}: {e.what}: {', '.join(some)}{more}")
    if problems and troubles is not None and troubles.tolerant:
        troubles.unfit(problems)
    elif problems:
        raise PlanError("rules that don't fit their tensors", where=pack.name, problems=problems)
    return done


def _instances(claimed: Sequence[Claimed]) -> list[_Instance]:
    found: dict[tuple[str, ...], _Instance] = {}
    for claim in claimed:
        rule = claim.bound.rule
        before, _ = claim.bound.rule.axes
        own = [a for a in before if a != LIST]
        shared = {n: v for n, v in claim.captures.items() if n not in own}
        instance = found.setdefault((rule.id, *shared.values()), _Instance(claim.bound, shared))
        index = [int(claim.captures[a]) for a in own]
        cell = (claim.part, *index) if LIST in before else tuple(index)
        instance.cells[cell] = claim
    return list(found.values())


def _build(instance: _Instance, exprs: Sequence[Expr], sizes: Mapping[str, int], done: list[Made]) -> None:
    rule = instance.bound.rule
    before, wanted = rule.axes
    now = list(before)
    _complete(instance, now)
    grid: Grid = {cell: exprs[c.place] for cell, c in instance.cells.items()}
    for op in rule.ops:
        grid = _apply(op, grid, now, Scope(sizes, len(rule.targets) if op.over is None else None))
    first = min(c.place for c in instance.cells.values())
    order = [now.index(a) for a in wanted]
    outputs = {tuple(cell[n] for n in order): expr for cell, expr in grid.items()}
    for cell, key in _keys(instance, wanted, list(outputs)):
        done.append(Made(first, key, outputs[cell], rule))


def _keys(instance: _Instance, wanted: Sequence[Axis], cells: Sequence[Cell]) -> Iterator[tuple[Cell, str]]:
    """The targets' keys, those of one template at once."""
    captured = [n for n, a in enumerate(wanted) if a != LIST]
    slots = {wanted[n]: (slot,) for slot, n in enumerate(captured)}
    hit = Hit((), {**{n: (text,) for n, text in instance.shared.items()}, **slots}, {})
    at = wanted.index(LIST) if LIST in wanted else None
    for part, target in enumerate(instance.bound.targets):
        mine = [c for c in cells if at is None or c[at] == part]
        columns = tuple([str(c[n]) for c in mine] for n in captured)
        yield from zip(mine, write(target, hit, Rows(range(len(mine)), columns)).keys, strict=True)


def _complete(instance: _Instance, now: Sequence[Axis]) -> None:
    """Raise UsageError where a part of the grid is missing."""
    for n, axis in enumerate(now):
        seen = {cell[n] for cell in instance.cells}
        count = len(instance.bound.rule.sources) if axis == LIST else max(seen) + 1
        missing = list(islice((m for m in range(count) if m not in seen), SHOWN + 1))
        if missing and axis == LIST:
            texts = [instance.bound.rule.sources[m].text for m in missing]
            raise UsageError(f"nothing matches {' and '.join(texts)} beside")
        if missing:
            shown = ", ".join(map(str, missing[:SHOWN])) + (", ..." if len(missing) > SHOWN else "")
            raise UsageError(f"{axis} counts to {count - 1}, and {shown} is missing")
    whole = 1
    for n in range(len(now)):
        whole *= len({cell[n] for cell in instance.cells})
    if whole != len(instance.cells):
        raise UsageError(f"{len(instance.cells)} of {whole} parts are there, along {_named(now)}")


def _apply(op: Op, grid: Grid, now: list[Axis], scope: Scope) -> Grid:
    """One op on the grid; ``now`` follows its axes."""
    if op.shape == "map":
        return {cell: op.build((expr,), scope)[0] for cell, expr in grid.items()}
    axis = op.over or LIST
    if op.shape == "join":
        n = now.index(axis)
        now.remove(axis)
        rows: dict[Cell, list[tuple[int, Expr]]] = {}
        for cell, expr in grid.items():
            rows.setdefault((*cell[:n], *cell[n + 1 :]), []).append((cell[n], expr))
        return {
            cell: op.build(tuple(e for _, e in sorted(parts, key=lambda p: p[0])), scope)[0]
            for cell, parts in rows.items()
        }
    now.append(axis)
    return {
        (*cell, k): part for cell, expr in grid.items() for k, part in enumerate(op.build((expr,), scope))
    }
