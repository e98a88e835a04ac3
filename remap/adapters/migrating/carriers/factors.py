"""IA3: a factor for every output of a module, or for every input of a feed-forward module."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from remap.adapters.algebra.terms import NotLowRank
from remap.adapters.algebra.vectors import FACTORS, Vector, along
from remap.adapters.migrating.job import Carried, Job, at, split
from remap.adapters.placing.places import Place
from remap.errors import UsageError
from remap.expr import Permute, Reshape
from remap.plan import Output

LEAF = "ia3_l"


@dataclass(frozen=True)
class Multiplied:
    """A module that gets factors.

    inputs   they are of its inputs
    flipped  its weight lies [in, out]
    """

    module: str
    inputs: bool
    flipped: bool
    carried: Carried


def factors(job: Job) -> list[Multiplied]:
    """Every module that gets factors; what can't be carried is added to the job's problems."""
    found = []
    for output, mine in job.readers(job.of("ia3")):
        try:
            made = _made(job, output, mine)
        except (NotLowRank, UsageError) as e:
            job.problems.append(f"{' and '.join(p.key for p in mine)} -> {output.key}: {e}")
            continue
        if made:
            found.append(made)
    return found


def _made(job: Job, output: Output, mine: Sequence[Place]) -> Multiplied | None:
    tensors = [p.tensors[LEAF] for p in mine]
    values = {p.key: (p, job.value(t)) for p, t in zip(mine, tensors, strict=True)}
    sides = {value.spec.shape[0] == 1 for _, value in values.values()}
    if len(sides) > 1:
        raise NotLowRank("factors of inputs and of outputs meet in one")
    inputs = sides.pop()

    def known(key: str) -> Vector | None:
        if key not in values:
            return None
        place, value = values[key]
        lying = Permute(value, (1, 0)) if place.flipped else value
        return Vector(lying, 0 if inputs != place.flipped else 1)

    vector = along(output.expr, known, FACTORS)
    if vector is None:
        return None
    module, name = split(output.key)
    size = vector.expr.spec.numel
    if name != "weight" or len(vector.expr.spec.shape) != 2:
        raise NotLowRank("it is no longer the weight of a module")
    flipped = (vector.thin == 0) != inputs
    shape = (1, size) if inputs else (size, 1)
    expr = vector.expr if vector.expr.spec.shape == shape else Reshape(vector.expr, shape)
    carried = Carried(at(tensors[0], module, LEAF), expr, output.rule, output.op)
    return Multiplied(module, inputs, flipped, carried)
