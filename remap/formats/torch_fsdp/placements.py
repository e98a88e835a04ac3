"""Which part of a DTensor a rank has, from the mesh, its coordinate in it, and the placements.

Every ``Shard`` cuts a dimension as ``torch.chunk`` does: pieces of ``ceil(n / parts)`` elements, the
last ones shorter or empty. Where several mesh dimensions cut one dimension, they do so from left to
right, except that ``_StridedShard(split_factor)`` says how many cuts came before it. Source: torch
``distributed/tensor/placement_types.py`` and ``_dtensor_spec.py``
(``_maybe_convert_StridedShard_to_shard_order``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod


@dataclass(frozen=True, slots=True)
class Placement:
    """How one mesh dimension cuts the tensor.

    dim           the tensor's dimension that it cuts, None where every rank along it has a copy
    split_factor  number of pieces that were cut before, 1 where this cut is the first
    """

    dim: int | None
    split_factor: int = 1


def box_of(
    shape: Sequence[int], mesh: Sequence[int], coordinate: Sequence[int], placements: Sequence[Placement]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """(offsets, sizes) of the part of a tensor of ``shape`` at ``coordinate`` of a mesh of shape ``mesh``.

    Raises ValueError where the placements can't be.
    """
    if not len(mesh) == len(coordinate) == len(placements):
        raise ValueError(f"{len(placements)} placements for a mesh of {len(mesh)} dimensions")
    offsets, sizes = [0] * len(shape), list(shape)
    for dim in range(len(shape)):
        for i in _order(mesh, placements, dim):
            piece = -(-sizes[dim] // mesh[i])
            start = min(piece * coordinate[i], sizes[dim])
            offsets[dim] += start
            sizes[dim] = min(piece, sizes[dim] - start)
    if any(p.dim is not None and not 0 <= p.dim < len(shape) for p in placements):
        raise ValueError(f"a placement cuts a dimension that shape {list(shape)} has not")
    return tuple(offsets), tuple(sizes)


def _order(mesh: Sequence[int], placements: Sequence[Placement], dim: int) -> list[int]:
    """The mesh dimensions that cut ``dim``, in the order in which they do."""
    order: list[int] = []
    for i in reversed(range(len(placements))):
        if placements[i].dim != dim:
            continue
        before = [
            k for k in range(len(order) + 1) if prod(mesh[j] for j in order[:k]) == placements[i].split_factor
        ]
        if not before:
            raise ValueError(f"split factor {placements[i].split_factor} on a mesh of shape {list(mesh)}")
        order.insert(before[0], i)
    return order
