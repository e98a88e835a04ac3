"""Tensor parallelism in the flow: ranks' tables are merged before the plan, its outputs are split after it.

    whole(catalog, settings)        several ranks' catalog -> the model's, and the class of every key
    placed(plan, settings)          the class of every output
    spread(plan, ranks)             the model's plan -> every rank's tensors

A layout says how each key is divided: the one that is named, or the one that knows all of the keys. A key
that it does not know is refused, since whether ranks hold pieces or copies of it can't be seen. Through a
plan the class rides on the rules (``plan.Output.partition``); where the target's layout knows a key, that one
says it.
"""

from remap.parallel.dividing import placed, rank_plan, ranked, sizes, spread
from remap.parallel.layouts import known, spoken_of
from remap.parallel.merging import whole
from remap.parallel.riding import rider
from remap.parallel.settings import AS_FOUND, Settings

__all__ = [
    "AS_FOUND",
    "Settings",
    "known",
    "placed",
    "rank_plan",
    "ranked",
    "rider",
    "sizes",
    "spoken_of",
    "spread",
    "whole",
]
