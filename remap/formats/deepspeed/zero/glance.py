"""Do ZeRO's fp32 weights belong to the model beside them? A look at a few elements tells.

After every step DeepSpeed rounds the fp32 weights to the type that the model is trained in, so that the two
agree. Where they don't, one of them is stale: weights were replaced under the same names, or loaded without
the optimizer by a version that then left its fp32 weights as they were.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice

from remap.expr import Cast, Reshape, Slice, Take
from remap.expr.blocks import block
from remap.types import Entry, Location

WEIGHTS = 16
"""So many are looked at, spread over the model."""

ELEMENTS = 64
"""So many of each."""


def departing(model: Mapping[str, Entry], fp32: Mapping[str, Entry]) -> list[str]:
    """Of a few weights, the keys of those that are not ``fp32`` in the model's type."""
    known = [k for k, e in fp32.items() if e.spec.numel and _is_plain(model[k])]
    looked_at = islice(known, 0, None, max(1, len(known) // WEIGHTS))
    return [k for k in looked_at if not _agree(model[k], fp32[k])]


def _is_plain(entry: Entry) -> bool:
    return (
        isinstance(entry.location, Location) and entry.location.strides is None and entry.spec.dtype.is_float
    )


def _agree(model: Entry, fp32: Entry) -> bool:
    numel = min(ELEMENTS, fp32.spec.numel)
    first = [Slice(Reshape(Take(e), (e.spec.numel,)), 0, 0, numel) for e in (model, fp32)]
    box = ((0, numel),)
    return block(first[0], box) == block(Cast(first[1], model.spec.dtype), box)
