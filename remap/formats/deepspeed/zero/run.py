"""What a step folder holds of ZeRO: all ranks' shards, complete and of one run, and what they hold by name.

In: a step folder. Out: a Run; its weights and moments under the names that the model gives them. A file
that is missing, cut short or of another run is named.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from pathlib import Path

from remap.errors import Damaged, InputError
from remap.formats.absent import absent
from remap.formats.deepspeed.names import ZeroFile, optimizer_files, partition_files, rank_files, rank_of
from remap.formats.deepspeed.zero.cut import Shapes
from remap.formats.deepspeed.zero.shard import Shard, read_shard
from remap.formats.deepspeed.zero.weights import WITHOUT, Weights, read_weights
from remap.formats.torch import file as torch_file
from remap.formats.torch.state import TorchFile

ZERO = "zero"
"""What ``--at`` calls the fp32 weights of ZeRO; ``--weights zero`` on the command line."""

SHAPES = "param_shapes"
FROZEN_SHAPES = "frozen_param_shapes"


@dataclass(frozen=True)
class Run:
    """The shards of every ``mp_rank``, by its number, in order."""

    folder: Path
    shards: Mapping[int, tuple[Shard, ...]]

    @property
    def first(self) -> Shard:
        """The first file."""
        return next(iter(self.shards.values()))[0]

    @property
    def stage(self) -> int:
        """1, 2 or 3."""
        return self.first.stage

    @property
    def files(self) -> tuple[Path, ...]:
        """All optimizer files."""
        return tuple(s.file.path for shards in self.shards.values() for s in shards)

    @property
    def opaque(self) -> tuple[str, ...]:
        """Classes that are not opened."""
        return tuple(sorted({c for shards in self.shards.values() for s in shards for c in s.opaque}))

    @cached_property
    def models(self) -> Mapping[int, TorchFile]:
        """The file that describes the model of every ``mp_rank``: of data-parallel rank 0, for ZeRO-3."""
        if self.stage == 3:
            files = {f.rank: f.path for f in partition_files(self.folder) if f.shard == 0}
        else:
            files = {r: p for p in rank_files(self.folder) if (r := rank_of(p.name)) is not None}
        return {r: torch_file.read(p, state_dict=False) for r, p in files.items() if r in self.shards}

    @property
    def named(self) -> bool:
        """True where the files say which weights the shards hold."""
        return len(self.models) == len(self.shards) and all(read_shapes(m) for m in self.models.values())

    @cached_property
    def weights(self) -> Mapping[int, Weights]:
        """What the shards of every ``mp_rank`` hold, by name. Raises Damaged, InputError."""
        if not self.named:
            raise InputError(
                f"no {SHAPES}: which weights the ZeRO files hold, and where, is said nowhere",
                where=self.folder,
                remedy=f"fetch the model files that were saved with them; {WITHOUT}",
            )
        return {
            rank: read_weights(self.shards[rank], read_shapes(model), model.path)
            for rank, model in self.models.items()
        }

    def of_rank(self, rank: int, ranks: int) -> Run:
        """The shards of one of ``ranks`` tensor-parallel ranks, in all pipeline stages: ``mp_rank`` counts
        stage by stage."""
        if ranks == 1:
            return self
        return Run(self.folder, {m: s for m, s in self.shards.items() if m % ranks == rank})

    @property
    def everything(self) -> Weights:
        """The weights of all pipeline stages. A tied one is on two of them: the first has it."""
        whole = Weights()
        for held in self.weights.values():
            for name in held.fp32:
                if name not in whole.fp32:
                    whole.fp32[name], whole.slots[name] = held.fp32[name], held.slots[name]
                    whole.values[name], whole.group[name] = held.values[name], held.group[name]
            whole.odd += held.odd
        return whole

    @property
    def without_frozen(self) -> bool:
        """True where the checkpoint was saved without its frozen weights: stages 2 and 3 list them."""
        return self.stage > 1 and any(
            FROZEN_SHAPES in m.keys and m.plain(FROZEN_SHAPES) is None for m in self.models.values()
        )

    def __str__(self) -> str:
        ranks = len(next(iter(self.shards.values())))
        what = f"{len(self.files)} ZeRO-{self.stage} files of {ranks} data-parallel rank{'s' * (ranks > 1)}"
        if not self.named:
            return f"{what} hold fp32 weights, and nothing here says of which"
        found = self.everything
        slots = list(dict.fromkeys(s for held in found.slots.values() for s in held))
        return f"{what} hold {', '.join(['fp32 weights', *slots])} of {len(found.fp32)} parameters"


def find_run(folder: Path) -> Run | None:
    """What a step folder holds of ZeRO, None where there are no optimizer files.

    Raises InputError: files that are missing, doubled, damaged or of different runs.
    """
    files = optimizer_files(folder)
    if not files:
        return None
    _check_unique(files)
    shards = {rank: tuple(map(read_shard, held)) for rank, held in groupby(files, key=lambda f: f.rank)}
    _check_complete(folder, shards)
    return Run(folder, shards)


def _check_unique(files: Sequence[ZeroFile]) -> None:
    doubled = [
        ", ".join(f.path.name for f in same)
        for same in (list(g) for _, g in groupby(files, key=lambda f: (f.rank, f.shard)))
        if len(same) > 1
    ]
    if doubled:
        raise Damaged(
            "a rank has two ZeRO files",
            where=files[0].path.parent,
            problems=doubled,
            remedy="remove those that were left from another run",
        )


def _check_complete(folder: Path, shards: Mapping[int, Sequence[Shard]]) -> None:
    everyone = [s for held in shards.values() for s in held]
    if len({(s.stage, s.counts) for s in everyone}) > 1 and not _differ_by_rank(shards):
        raise Damaged(
            "the ZeRO files are not of one run",
            where=folder,
            problems=[f"{s.file.path.name}: stage {s.stage}, cut into {_counts(s)}" for s in everyone],
            remedy="fetch all of one step again, or remove those that were left from another run",
        )
    missing = []
    for rank, held in shards.items():
        there = {s.file.shard for s in held}
        wanted = max(held[0].counts, default=len(held))
        missing += [f"zero_pp_rank_{n}_mp_rank_{rank:02d}" for n in absent(there, wanted)[1]]
        surplus = [s.file.path.name for s in held if s.file.shard >= wanted]
        if surplus:
            raise Damaged(
                f"the weights are cut over {wanted} ranks, and these are beyond",
                where=folder,
                problems=surplus,
                remedy="remove the files that were left from another run",
            )
        if set(held[0].counts) - {wanted}:
            raise InputError(
                "groups are cut over different numbers of ranks, as experts are; remap does not read those",
                where=held[0].file.path,
            )
    ranks = {rank_of(p.name) for p in rank_files(folder)} or set(shards)
    missing += [
        f"zero_pp_rank_0_mp_rank_{r:02d}"
        for r in sorted(r for r in ranks if r is not None and r not in shards)
    ]
    if missing:
        raise Damaged(
            "ZeRO files are missing",
            where=folder,
            problems=missing,
            remedy="fetch them, or remove all of *_optim_states.pt if the model alone is wanted",
        )


def _differ_by_rank(shards: Mapping[int, Sequence[Shard]]) -> bool:
    """True where only pipeline stages differ: they may have other numbers of groups."""
    return all(len({(s.stage, s.counts) for s in held}) == 1 for held in shards.values()) and (
        len({(held[0].stage, max(held[0].counts, default=0)) for held in shards.values()}) == 1
    )


def _counts(shard: Shard) -> str:
    return ", ".join(map(str, dict.fromkeys(shard.counts))) or "nothing"


def read_shapes(model: TorchFile, name: str = SHAPES) -> list[Shapes]:
    """``param_shapes``, a dict for every group; [] where there is none."""
    value = model.plain(name) if name in model.keys else None
    found = list(_dicts(value if isinstance(value, list) else [value]))
    for names in found:
        for key, shape in names.items():
            if not isinstance(shape, tuple) or not all(type(n) is int and n >= 0 for n in shape):
                raise Damaged("is no shape", where=f"{model.path}: {name}: {key}")
    return found


def _dicts(values: Iterable[object]) -> Iterator[Shapes]:
    return (v for v in values if isinstance(v, dict))
