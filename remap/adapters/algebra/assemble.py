"""Terms -> the factors of one module, as PEFT keeps them.

    linear, Conv1D    A [r, in], B [out, r]
    embedding         A [r, vocab], B [dim, r]
    convolution       A [r, in, height, width], B [out, r, 1, 1]
    experts           A [experts*r, in], B [out, r*experts]: A is expert by expert, B rank by rank
                      (peft 0.21 ``lora/layer.py``, ``ParamWrapper.get_delta_weight``)

Terms that share a factor share its ranks: query, key and value that were split off one tensor come together
again without growing. Others are laid beside each other, block-diagonally.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import prod

from remap.adapters.algebra.terms import Delta, NotLowRank, Side, Term, cut, moved, widened
from remap.dtypes import dtype
from remap.expr import Affine, Cast, Concat, Constant, Expr, Pad, Reshape, Slice, Sum

Ordered = tuple[Side, Side]


@dataclass(frozen=True)
class Factors:
    """What a module gets.

    kind       linear, embedding, conv, or experts
    rank       of each expert, of the whole otherwise
    scale      what the product is multiplied by
    flipped    the weight lies [in, out]
    """

    kind: str
    a: Expr
    b: Expr
    rank: int
    scale: float
    flipped: bool = False


def assemble(delta: Delta) -> Factors:
    """The factors of a change, which has a term at least. Raises NotLowRank."""
    kinds = {t.kind for t in delta.terms}
    if len(kinds) > 1:
        raise NotLowRank(f"{' and '.join(sorted(kinds))} layers meet in one weight")
    (kind,) = kinds
    scale = next((t.scale for t in delta.terms if t.scale), 1.0)
    delta = _one_type(Delta(delta.shape, tuple(_scaled(t, scale) for t in delta.terms)))
    dims = len(delta.shape)
    if dims > 3 or (dims == 3 and kind == "conv"):
        return _conv(delta, scale)
    if dims == 3:
        return _experts(delta, scale)
    if dims != 2:
        raise NotLowRank(f"it becomes a tensor of {dims} dimensions")
    sides = _sides(delta)
    a, b = _matrices(delta, sides)
    flipped = sides == ("A", "B")
    if kind == "embedding" and not flipped:
        raise NotLowRank("an embedding is transposed")
    return Factors("linear" if kind == "conv" else kind, a, b, a.spec.shape[0], scale, flipped)


def _scaled(term: Term, scale: float) -> Term:
    """The term with the given scale; what it differs by goes into B."""
    if term.scale == scale:
        return term
    return replace(term, b=Affine(term.b, term.scale / scale), scale=scale)


def _one_type(delta: Delta) -> Delta:
    """All factors in one element type."""
    types = {f.spec.dtype for t in delta.terms for f in (t.a, t.b)}
    if len(types) == 1:
        return delta
    wide = dtype("float32")
    return Delta(delta.shape, tuple(replace(t, a=Cast(t.a, wide), b=Cast(t.b, wide)) for t in delta.terms))


def _sides(delta: Delta) -> Ordered:
    """Which side rows and columns are. Raises NotLowRank where terms differ."""
    found: set[Ordered] = set()
    for sides in {t.sides for t in delta.terms}:
        first, second = sides
        if first and first == second:
            what = "outputs" if first == "B" else "inputs"
            raise NotLowRank(f"rows and columns are both {what} of layers")
        if first or second:
            found.add(("B", "A") if first == "B" or second == "A" else ("A", "B"))
    if len(found) > 1:
        raise NotLowRank("some parts are transposed and some are not")
    return found.pop() if found else ("B", "A")


def _matrices(delta: Delta, sides: Ordered) -> tuple[Expr, Expr]:
    """A [r, inputs] and B [outputs, r]."""
    out, in_ = sides.index("B"), sides.index("A")
    terms = [_flat(t, sides) for t in delta.terms]
    rows = [_merged(g, out, delta.shape[out]) for g in _grouped(terms, "A", in_)]
    both = [_merged(g, in_, delta.shape[in_]) for g in _grouped(rows, "B", out)]
    whole = [widened(widened(t, out, delta.shape[out], "B"), in_, delta.shape[in_], "A") for t in both]
    return concat([t.a for t in whole], 0), concat([t.b for t in whole], 1)


def _flat(term: Term, sides: Ordered) -> Term:
    """A term with an axis for both dimensions, also where the box is one element wide."""
    for dim, side in enumerate(sides):
        if not term.sides[dim]:
            shape = term.factor(side).spec.shape
            longer = (*shape, 1) if side == "A" else (1, *shape)
            full = (*term.sides[:dim], side, *term.sides[dim + 1 :])
            term = replace(term.changed(side, Reshape(term.factor(side), longer)), sides=full)
    return term


def _grouped(terms: Iterable[Term], side: Side, dim: int) -> list[list[Term]]:
    """Terms that have one factor in one place."""
    found: dict[object, list[Term]] = {}
    for t in terms:
        found.setdefault((t.factor(side), t.box[dim]), []).append(t)
    return list(found.values())


def _merged(terms: Sequence[Term], dim: int, size: int) -> Term:
    """Terms that share the factor of the other side, as one."""
    first = terms[0]
    if len(terms) == 1:
        return first
    side = first.sides[dim]
    ordered = sorted(terms, key=lambda t: t.box[dim])
    if all(a.box[dim][1] <= b.box[dim][0] for a, b in pairwise(ordered)):
        return _in_a_row(ordered, dim, side)
    whole = [widened(t, dim, size, side) for t in terms]
    return whole[0].changed(side, Sum(tuple(t.factor(side) for t in whole)))


def _in_a_row(ordered: Sequence[Term], dim: int, side: Side) -> Term:
    """Terms that lie one behind the other; zeros between them."""
    axis = ordered[0].axis(dim)
    parts: list[Expr] = []
    at = ordered[0].box[dim][0]
    for t in ordered:
        start, stop = t.box[dim]
        part = t.factor(side)
        parts.append(Pad(part, axis, start - at) if start > at else part)
        at = stop
    return moved(ordered[0].changed(side, concat(parts, axis)), dim, (ordered[0].box[dim][0], at))


def concat(parts: Sequence[Expr], dim: int) -> Expr:
    """Joined; slices that follow one another in one tensor, and are all of it, are that tensor."""
    if len(parts) == 1:
        return parts[0]
    slices = [p for p in parts if isinstance(p, Slice) and p.dim == dim]
    if len(slices) == len(parts):
        whole = slices[0].of
        ends = [0, *(s.stop for s in slices)]
        follows = all(s.of == whole and s.start == e for s, e in zip(slices, ends, strict=False))
        if follows and ends[-1] == whole.spec.shape[dim]:
            return whole
    return Concat(tuple(parts), dim)


def _experts(delta: Delta, scale: float) -> Factors:
    count = delta.shape[0]
    each = [
        Delta(delta.shape[1:], tuple(_without_first(p) for t in delta.terms if (p := cut(t, 0, e, e + 1))))
        for e in range(count)
    ]
    sides = _sides(Delta(delta.shape[1:], tuple(t for d in each for t in d.terms)))
    made = [_matrices(d, sides) if d.terms else None for d in each]
    rank = max(m[0].spec.shape[0] for m in made if m)
    nothing = next((_zeros(m[0]), _zeros(m[1])) for m in made if m)
    a, b = [], []
    for m in made:
        first, second = m or nothing
        short = rank - first.spec.shape[0]
        a.append(Pad(first, 0, 0, short) if short else first)
        second = Pad(second, 1, 0, short) if short else second
        b.append(Reshape(second, (*second.spec.shape, 1)))
    out = b[0].spec.shape[0]
    whole_b = Reshape(Concat(tuple(b), 2), (out, rank * count))
    return Factors("experts", Concat(tuple(a), 0), whole_b, rank, scale, sides == ("A", "B"))


def _zeros(like: Expr) -> Expr:
    return Constant(like.spec)


def _without_first(term: Term) -> Term:
    """The term of the one element of the first dimension."""
    return replace(term, sides=term.sides[1:], box=term.box[1:])


def _conv(delta: Delta, scale: float) -> Factors:
    """The rows are outputs, all other dimensions inputs."""
    rows, *rest = delta.shape
    terms = []
    for t in delta.terms:
        if t.sides[0] == "A" or "B" in t.sides[1:]:
            raise NotLowRank("the outputs of a convolution are no longer its first dimension")
        for dim, size in enumerate(rest, 1):
            t = _sided(widened(t, dim, size, "A"), dim)
        flat = Reshape(t.a, (t.rank, prod(rest)))
        terms.append(replace(t, sides=(t.sides[0], "A"), box=(t.box[0], (0, prod(rest))), a=flat))
    a, b = _matrices(Delta((rows, prod(rest)), tuple(terms)), ("B", "A"))
    rank = a.spec.shape[0]
    ones = (1,) * (len(rest) - 1)
    return Factors("conv", Reshape(a, (rank, *rest)), Reshape(b, (rows, rank, *ones)), rank, scale)


def _sided(term: Term, dim: int) -> Term:
    """A dimension of size 1 as one of the inputs."""
    if term.sides[dim]:
        return term
    sides: tuple[Side, ...] = (*term.sides[:dim], "A", *term.sides[dim + 1 :])
    term = replace(term, sides=sides)
    at, shape = term.axis(dim), term.a.spec.shape
    return replace(term, a=Reshape(term.a, (*shape[:at], 1, *shape[at:])))
