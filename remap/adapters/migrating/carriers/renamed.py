"""Methods whose tensors go with a weight as it is: they follow a rename, and nothing else."""

from __future__ import annotations

from dataclasses import dataclass

from remap.adapters.migrating.job import Carried, Job, at, split
from remap.adapters.placing.places import Place
from remap.expr import Take

WHY = {
    "hada_w1_a": "LoHa's product of products",
    "lokr_w1": "LoKr's Kronecker product",
    "oft_R": "OFT's rotation of all inputs",
    "boft_R": "BOFT's rotation of all inputs",
    "vera_lambda_b": "VeRA's projections, which all layers share",
    "lora_E": "AdaLoRA's singular values",
    "token_adapter": "rows for trained tokens",
}
"""Head of a leaf -> what can't be cut or joined."""


@dataclass(frozen=True)
class Renamed:
    """A module whose tensors moved: its path before and after."""

    before: str
    module: str
    carried: tuple[Carried, ...]


def renamed(job: Job) -> list[Renamed]:
    """Every module that moved; what can't be carried is added to the job's problems."""
    found = []
    for output, mine in job.readers(job.of("other")):
        module, name = split(output.key)
        for place in mine:
            if not isinstance(output.expr, Take) or name != "weight":
                told = f"{_what(place)}, and this is {output.op}"
                job.problems.append(f"{place.key} -> {output.key}: {told}")
                continue
            carried = tuple(
                Carried(at(t, module, leaf), job.value(t), output.rule, "rename")
                for leaf, t in place.tensors.items()
            )
            found.append(Renamed(place.module, module, carried))
    return found


def _what(place: Place) -> str:
    heads = [leaf.partition(".")[0] for leaf in place.tensors]
    known = next((WHY[h] for h in heads if h in WHY), heads[0])
    return f"{known} can follow a rename only"


def unplaced(job: Job) -> list[Carried]:
    """What belongs to no module: prompts, which depend on no names; projections that modules share."""
    found = [t for t in job.adapter.tensors if not t.module]
    if found and job.adapter.config.get("peft_type") == "PREFIX_TUNING":
        reordered = [o.key for o in job.plan.outputs if not isinstance(o.expr, Take)]
        what = f"{found[0].key}: a prefix is keys and values, so no row of a weight may move"
        if not job.whole:
            job.problems.append(f"{what}: give the base (--base)")
        elif reordered:
            job.problems.append(f"{what}, and the packs move those of {reordered[0]}")
    return [Carried(at(t, "", t.leaf), job.value(t), "", "copy") for t in found]
