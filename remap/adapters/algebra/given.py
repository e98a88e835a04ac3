"""The factors of a module, as PEFT keeps them -> the change of its weight."""

from __future__ import annotations

from dataclasses import replace

from remap.adapters.algebra.terms import Delta, Kind, Side, Term, narrowed
from remap.expr import Expr, Reshape, Slice


def term_of(kind: Kind, a: Expr, b: Expr, scale: float, *, flipped: bool = False) -> Delta:
    """The change of one weight: A [r, in, ...], B [out, r, ...] -> its only term.

    flipped  the weight lies [in, out] (Conv1D, embeddings)
    """
    rank, *inputs = a.spec.shape
    outputs = b.spec.shape[0]
    flat = Reshape(b, (outputs, rank)) if len(b.spec.shape) > 2 else b
    if flipped:
        return Delta((inputs[0], outputs), (_term(("A", "B"), (inputs[0], outputs), flat, a, scale, kind),))
    sides: tuple[Side, ...] = ("B", *_inputs(len(inputs)))
    return Delta((outputs, *inputs), (_term(sides, (outputs, *inputs), flat, a, scale, kind),))


def _inputs(count: int) -> tuple[Side, ...]:
    side: Side = "A"
    return (side,) * count


def experts_of(a: Expr, b: Expr, count: int, scale: float, *, flipped: bool = False) -> Delta:
    """The change of stacked experts, of factors as in the module's docstring: a term an expert."""
    rank, inputs = a.spec.shape[0] // count, a.spec.shape[1]
    outputs = b.spec.shape[0]
    by_expert = Reshape(b, (outputs, rank, count))
    rows, columns = (inputs, outputs) if flipped else (outputs, inputs)
    sides: tuple[Side, ...] = ("", "A", "B") if flipped else ("", "B", "A")
    terms = []
    for e in range(count):
        one = Reshape(Slice(by_expert, 2, e, e + 1), (outputs, rank))
        part = _term(sides, (1, rows, columns), one, Slice(a, 0, e * rank, (e + 1) * rank), scale, "linear")
        terms.append(replace(part, box=((e, e + 1), *part.box[1:])))
    return Delta((count, rows, columns), tuple(terms))


def _term(
    sides: tuple[Side, ...], shape: tuple[int, ...], b: Expr, a: Expr, scale: float, kind: Kind
) -> Term:
    return narrowed(Term(tuple((0, n) for n in shape), sides, b, a, scale, kind))
