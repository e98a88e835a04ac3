"""LoRA: the factors of every new weight, with the scale that its module needs.

Query, key and value adapters that were made by splitting one have equal factors A in the file: equal tensors
are taken for one, so joining them again costs no ranks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import sqrt

from remap.adapters.algebra.assemble import Factors, assemble
from remap.adapters.algebra.follow import follow
from remap.adapters.algebra.given import experts_of, term_of
from remap.adapters.algebra.prune import pruned
from remap.adapters.algebra.terms import Delta, NotLowRank
from remap.adapters.algebra.vectors import LENGTHS, OFFSETS, Meaning, Vector, along
from remap.adapters.migrating.job import Carried, Job, at, split
from remap.adapters.placing.parameters import wrapped
from remap.adapters.placing.places import EMBEDDING, LINEAR, Place, parameter_scale
from remap.adapters.placing.variants import beyond_factors
from remap.adapters.scaling import scale
from remap.dialects.base import AdapterTensor
from remap.dtypes import DType
from remap.errors import UsageError
from remap.expr import Cast, Expr, Lengths, Permute, Reshape, Take, takes
from remap.plan import Output
from remap.stream.whole import whole

_VECTORS = {"lora_magnitude_vector": LENGTHS, "lora_B.bias": OFFSETS}


@dataclass(frozen=True)
class Ranked:
    """A module, or a bare parameter, that gets factors.

    name     of the parameter: ``weight`` for a module
    bare     PEFT is to wrap the parameter, not the module
    alpha    what gives the scale at this rank
    vectors  leaf -> DoRA's lengths, the bias of B
    like     a tensor of the old adapter, for wrapper and name
    """

    module: str
    name: str
    bare: bool
    factors: Factors
    alpha: float
    vectors: Mapping[str, Expr]
    like: AdapterTensor
    rule: str
    op: str

    @property
    def rank(self) -> int:
        """Of the module, of each expert."""
        return self.factors.rank


def low_rank(job: Job) -> list[Ranked]:
    """Every module that gets factors; what can't be carried is added to the job's problems."""
    places = job.of("lora", "experts", "embedding")
    changes = _Changes(job)
    found = []
    left: set[str] = set()
    for output, mine in job.readers(places):
        try:
            given = changes.of(mine)
            ranked = _ranked(job, output, mine, given)
            left.update(k for k, d in given.items() if follow(output.expr, {k: d}.get).terms)
        except (NotLowRank, UsageError) as e:
            rule = f" (rule {output.rule})" if output.rule else ""
            job.problems.append(f"{' and '.join(p.key for p in mine)} -> {output.key}{rule}: {e}")
            continue
        if ranked:
            found.append(ranked)
    if not job.problems:
        job.notes.extend(f"{k}: the packs cut away what the adapter changes" for k in places if k not in left)
    return found


def _ranked(job: Job, output: Output, mine: Sequence[Place], changes: Mapping[str, Delta]) -> Ranked | None:
    delta = follow(output.expr, changes.get)
    if not delta.terms:
        return None  # of the weights it has parts that the adapter does not change
    vectors = {leaf: v for leaf, m in _VECTORS.items() if (v := _vector(job, output, mine, leaf, m))}
    factors = assemble(delta)
    if not isinstance(output.expr, Take):
        less = pruned(factors)
        if less is None and not vectors and any(_trained(d) for d in changes.values()):
            job.notes.append(f"{output.key}: the adapter does not change this part, so it gets no factors")
            return None
        factors = less or factors
    module, name = split(output.key)
    bare = factors.kind == "experts" or name != "weight"
    _check(job, output, delta, vectors, bare=bare)
    slow = bool(job.adapter.config.get("use_rslora"))
    alpha = factors.scale * (sqrt(factors.rank) if slow else factors.rank)
    like = next(iter(mine[0].tensors.values()))
    op = "rename" if isinstance(output.expr, Take) else output.op
    return Ranked(module, name, bare, factors, alpha, vectors, like, output.rule, op)


def _check(job: Job, output: Output, delta: Delta, vectors: Mapping[str, Expr], *, bare: bool) -> None:
    """Raise NotLowRank for what factors alone don't say."""
    more = beyond_factors(job.adapter)
    if more and not isinstance(output.expr, Take):
        raise NotLowRank(more)
    if "lora_B.bias" in vectors and len({t.scale for t in delta.terms}) > 1:
        raise NotLowRank("modules with a bias of lora_B and different scales meet in one")
    if bare and vectors:
        raise NotLowRank("PEFT has DoRA and biases for modules only, not for bare parameters")


def _trained(delta: Delta) -> bool:
    """Is the change of a base's weight not zero? Before any training it is."""
    return pruned(assemble(delta)) is not None


def _vector(job: Job, output: Output, mine: Sequence[Place], leaf: str, meaning: Meaning) -> Expr | None:
    here = {p.key: p for p in mine}
    having = [p for p in mine if leaf in p.tensors]
    if not having:
        return None
    if isinstance(output.expr, Take):
        return job.value(having[0].tensors[leaf])
    kind = job.value(having[0].tensors[leaf]).spec.dtype
    others = {} if meaning is not LENGTHS else {t.entry.key: t for t in takes(output.expr)}

    def known(key: str) -> Vector | None:
        place = here.get(key)
        if place is not None and leaf in place.tensors:
            return _laid(job.value(place.tensors[leaf]), meaning, flipped=place.flipped)
        other = others.get(key)
        if place is not None or other is None or other.entry.location is None:
            return None
        return _as_it_is(other, kind, flipped=having[0].flipped)

    found = along(output.expr, known, meaning)
    return Reshape(found.expr, (found.expr.spec.numel,)) if found else None


def _laid(value: Expr, meaning: Meaning, *, flipped: bool) -> Vector:
    """The vector as its weight lies."""
    if len(value.spec.shape) != 1:
        raise NotLowRank(f"{meaning.name} of shape {list(value.spec.shape)}")
    size = value.spec.shape[0]
    return Vector(Reshape(value, (1, size) if flipped else (size, 1)), 0 if flipped else 1)


def _as_it_is(weight: Take, kind: DType, *, flipped: bool) -> Vector:
    """The lengths that the base's own rows have: with them DoRA changes nothing."""
    rows = Lengths(Permute(weight, (1, 0)) if flipped else weight)
    lying = Permute(rows, (1, 0)) if flipped else rows
    return Vector(lying if kind == lying.spec.dtype else Cast(lying, kind), 0 if flipped else 1)


class _Changes:
    """The changes of base weights; equal factors are one, where weights are joined."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._first: dict[tuple[object, bytes], Expr] = {}

    def of(self, places: Sequence[Place]) -> dict[str, Delta]:
        return {p.key: self._change(p, shared=len(places) > 1) for p in places}

    def _change(self, place: Place, *, shared: bool) -> Delta:
        names = EMBEDDING if place.kind == "embedding" else LINEAR
        a, b = (self._job.value(place.tensors[n]) for n in names)
        if shared:
            a, b = self._same(a), self._same(b)
        if place.kind == "experts":
            assert place.spec is not None
            by = parameter_scale(self._job.adapter, place.key)
            return experts_of(a, b, place.spec.shape[0], by, flipped=place.flipped)
        module = place.tensors[names[0]].module
        kind = "embedding" if place.kind == "embedding" else "conv" if len(a.spec.shape) > 2 else "linear"
        return term_of(kind, a, b, scale(self._job.adapter, module), flipped=place.flipped)  # type: ignore[arg-type]

    def _same(self, factor: Expr) -> Expr:
        if not isinstance(factor, Take) or factor.entry.location is None:
            return factor
        return self._first.setdefault((factor.spec, bytes(whole(factor.entry))), factor)


def tensors(found: Iterable[Ranked]) -> Iterator[Carried]:
    """The tensors of the new adapter."""
    ranked = list(found)
    bare: dict[str, set[str]] = {}
    for r in ranked:
        if r.bare:
            bare.setdefault(r.module, set()).add(r.name)
    for r in ranked:
        module = wrapped(r.module, r.name, bare[r.module]) if r.bare else r.module
        a, b = EMBEDDING if r.factors.kind == "embedding" else LINEAR
        for leaf, expr in {a: r.factors.a, b: r.factors.b, **r.vectors}.items():
            yield Carried(at(r.like, module, leaf), expr, r.rule, r.op)
