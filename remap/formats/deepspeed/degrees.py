"""How many tensor-parallel ranks and pipeline stages a step folder was saved by, told by its file names and
checked against what its rank files say. ``mp_rank_XX`` is stage x ranks + rank (DeepSpeed
runtime/pipe/topology.py), so its files alone tell neither.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from remap.errors import Damaged
from remap.formats.deepspeed.names import layer_files, layer_of
from remap.formats.torch.state import TorchFile


@dataclass(frozen=True)
class Folder:
    """A step folder that was read: its degrees, and its ``mp_rank_XX`` files in order."""

    path: Path
    tp: int
    pp: int
    ranks: tuple[Path, ...]

    def like(self, stage: int, rank: int, stages: int, ranks: int) -> Path | None:
        """The rank file in whose likeness that of another number of stages and ranks is made."""
        place = stage * self.pp // stages * self.tp + rank * self.tp // ranks
        if place < len(self.ranks):
            return self.ranks[place]
        return self.ranks[0] if self.ranks else None


def layers_by_rank(folder: Path) -> list[dict[int, Path]]:
    """For every tensor-parallel rank, layer -> file. Raises Damaged where a layer has a file too many or
    too few: DeepSpeed would take what was left of another run for a part of it."""
    found: dict[int, dict[int, list[Path]]] = {}
    for path in layer_files(folder):
        layer = layer_of(path.name)
        assert layer is not None
        found.setdefault(layer.index, {}).setdefault(layer.rank or 0, []).append(path)
    problems = [
        f"layer {i}, rank {r}: {', '.join(p.name for p in paths)}"
        for i, ranks in found.items()
        for r, paths in ranks.items()
        if len(paths) > 1
    ]
    if problems:
        raise Damaged(
            "a layer has more than one file; DeepSpeed would take them for tensor-parallel parts",
            where=folder,
            problems=problems,
            remedy="remove the files that do not belong to this checkpoint",
        )
    count = 1 + max(r for ranks in found.values() for r in ranks)
    uneven = [f"layer {i}: {_listed(ranks)}" for i, ranks in found.items() if len(ranks) != count]
    if uneven:
        raise Damaged(
            f"the layers do not all have files of ranks 0 to {count - 1}",
            where=folder,
            problems=uneven,
            remedy="fetch what is missing, or remove what was left of another run",
        )
    return [{i: ranks[r][0] for i, ranks in sorted(found.items())} for r in range(count)]


def _listed(ranks: Iterable[int]) -> str:
    return ", ".join(f"rank {r}" for r in sorted(ranks))


def read_folder(path: Path, ranks: int, files: list[Path], first: TorchFile | None) -> Folder:
    """The degrees of a step whose weights lie in ``ranks`` files a layer, or one a rank file.

    first  the first of its rank ``files``, read. Raises Damaged where that says another number.
    """
    problems = [f"{what} is {n}" for what, n in _said(first) if n != ranks]
    world = _number(first, "mp_world_size") or len(files) or 1
    if world % ranks:
        problems.append(f"mp_world_size is {world}")
    if problems:
        assert first is not None
        raise Damaged(
            f"the weights are those of {ranks} tensor-parallel ranks, and {first.path.name} says otherwise",
            where=path,
            problems=problems,
            remedy="remove the files that were left of another run, or fetch the whole step again",
        )
    return Folder(path, ranks, world // ranks, tuple(files))


def ranks_of(first: TorchFile) -> int:
    """Tensor-parallel ranks of the run, as its rank file says it; 1 where it does not."""
    return max((n for _, n in _said(first)), default=1)


def _said(first: TorchFile | None) -> Iterator[tuple[str, int]]:
    for places in (("args", "model_parallel_size"), ("checkpoint_parallel_dimensions", "tp_degree")):
        found = _number(first, *places)
        if found is not None:
            yield ".".join(places), found


def _number(first: TorchFile | None, *place: str) -> int | None:
    if first is None or place[0] not in first.keys:
        return None
    value: object = first.plain(place[0])
    for step in place[1:]:
        value = value.get(step) if isinstance(value, Mapping) else None
    return value if isinstance(value, int) and value > 0 else None
