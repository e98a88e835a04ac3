"""IA3: a factor for every output of a module, or for every input of a feed-forward module."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from remap.adapters.algebra.terms import NotLowRank
from remap.adapters.algebra.vectors import FACTORS, Vector, along
from remap.adapters.migration.job import Carried, Job, at, split
from remap.adapters.migration.places import Place
from remap.errors import UsageError
from remap.plan import Output

LEAF = "ia3_l"


@dataclass(frozen=True)
class Multiplied:
    """A module that gets factors; ``inputs`` where they are of its inputs."""

    module: str
    inputs: bool
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
    values = {p.key: job.value(t) for p, t in zip(mine, tensors, strict=True)}
    thin = {v.spec.shape.index(1) for v in values.values() if len(v.spec.shape) == 2 and 1 in v.spec.shape}
    if len(thin) != 1:
        raise NotLowRank("factors of inputs and of outputs meet in one")
    dim = thin.pop()

    def known(key: str) -> Vector | None:
        value = values.get(key)
        return Vector(value, dim) if value else None

    vector = along(output.expr, known, FACTORS)
    if vector is None:
        return None
    module, name = split(output.key)
    if name != "weight" or len(vector.expr.spec.shape) != 2:
        raise NotLowRank("it is no longer the weight of a module")
    carried = Carried(at(tensors[0], module, LEAF), vector.expr, output.rule, output.op)
    return Multiplied(module, vector.thin == 0, carried)
