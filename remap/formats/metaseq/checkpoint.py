"""A whole metaseq checkpoint: every part, every shard, found from any one of its files.

In: a path. Out: a Checkpoint; no tensor is read, and what does not belong together is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from remap.errors import SHOWN, Damaged, InputError
from remap.expr import Expr
from remap.formats.metaseq.check import warnings
from remap.formats.metaseq.files.names import Family, check_complete, family
from remap.formats.metaseq.files.places import check_places
from remap.formats.metaseq.files.shards import MODEL, OPTIMIZER, Place
from remap.formats.metaseq.optimizer.agree import WITHOUT
from remap.formats.metaseq.optimizer.slots import Optimizer
from remap.formats.metaseq.part import Part, derived, read_part
from remap.formats.metaseq.partition import Divider, Partition, divider, load_partition
from remap.partitions.base import Copies

_SQUARE = re.compile(r"(?:.*\.)?self_attn\.out_proj\.weight")
"""(D, D / parts) in every part: its shape says how many parts there are."""


@dataclass(frozen=True)
class Checkpoint:
    """Parts in order; ``warnings`` is what a user should know."""

    family: Family
    parts: tuple[Part, ...]
    warnings: tuple[str, ...]

    @property
    def sharded(self) -> bool:
        """True where the tensors are flat."""
        return self.parts[0].sharded

    @property
    def shards(self) -> int:
        """Number of shards of every part."""
        return len(self.parts[0].shards)

    @property
    def buffers(self) -> tuple[str, ...]:
        """Names of the model's buffers, as the shards list them."""
        metadata = self.parts[0].metadata
        return metadata.buffers if metadata else ()

    def optimizers(self) -> list[Optimizer] | None:
        """The optimizer's state of every part, None where there is none. Raises InputError."""
        found = [p.optimizer() for p in self.parts]
        have = [o for o in found if o is not None]
        if have and len(have) < len(found):
            lacking = [p.shards[0].path.name for p, o in zip(self.parts, found, strict=True) if o is None]
            raise InputError(
                f"model parts without {OPTIMIZER}",
                where=self.family.first.parent,
                problems=lacking,
                remedy=f"fetch the files again, or {WITHOUT}",
            )
        return have or None

    def divider(
        self,
        partition: Partition | None = None,
        *,
        target: int = 1,
        tied: bool = False,
        copies: Copies = "error",
    ) -> Divider:
        """How the tensors of the parts are divided: see ``partition.divider``, which raises."""
        return divider(
            partition or load_partition(),
            [p.named() for p in self.parts],
            target=target,
            buffers=self.buffers,
            tied=tied,
            copies=copies,
            where=self.family.first,
        )

    def merged(self, how: Divider, place: Place = MODEL) -> dict[str, Expr]:
        """The tensors of the whole model by name; a tie is one object under two names."""
        whole = how.merge([p.named(place, how.copies) for p in self.parts])
        made: dict[int, Expr] = {}
        return {k: made.setdefault(id(e), derived(k, e)) for k, e in whole.items()}


def read_checkpoint(path: Path) -> Checkpoint:
    """Read the checkpoint that ``path`` is a file of. Raises InputError, Damaged naming every odd file."""
    files = family(path)
    check_complete(files, files.parts, files.shards)
    parts = tuple(read_part(files, n) for n in range(files.parts))
    _check_alike(parts)
    _check_parts(files, parts)
    check_places(files, [s for p in parts for s in p.shards], len(parts))
    said = [*warnings(len(parts), len(parts[0].shards), parts[0].shards[0]), *_unlisted(parts[0])]
    return Checkpoint(files, parts, tuple(said))


def _check_alike(parts: tuple[Part, ...]) -> None:
    """All parts are of one step, in one form."""
    steps = {p.shards[0].updates for p in parts}
    forms = {(p.sharded, tuple(p.trees)) for p in parts}
    if len(steps) > 1 or len(forms) > 1:
        what = "are of different steps" if len(steps) > 1 else "are not in the same form"
        raise Damaged(
            f"model parts {what}",
            where=parts[0].shards[0].path.parent,
            problems=[
                f"{p.shards[0].path.name}: step {p.shards[0].updates}, "
                f"{'flat' if p.sharded else 'unflattened'}, {', '.join('.'.join(t) for t in p.trees)}"
                for p in parts
            ],
            remedy="put only files of one step into one folder",
        )


def _check_parts(files: Family, parts: tuple[Part, ...]) -> None:
    """The attention's output is square in the whole model: so the number of parts can be seen."""
    if files.name.part is None:
        return
    for name, shape in _shapes(parts[0]):
        if not _SQUARE.fullmatch(name) or len(shape) != 2 or not shape[1] or shape[0] % shape[1]:
            continue
        wanted = shape[0] // shape[1]
        if wanted > len(parts):
            beyond = range(len(parts), min(wanted, len(parts) + SHOWN))
            missing = [str(files.name.numbers(p, 0)) for p in beyond]
            raise Damaged(
                f"{name} is {list(shape)}, which is one of {wanted} model parts; {len(parts)} are here",
                where=files.first.parent,
                problems=missing,
                remedy="fetch the missing files into the same folder",
            )
        return


def _shapes(part: Part) -> Iterator[tuple[str, tuple[int, ...]]]:
    if part.sharded and part.metadata:
        for flat in part.metadata.flats.values():
            yield from flat.shapes.items()
    for key, entry in part.shards[0].trees[MODEL].items():
        yield key, entry.spec.shape


def _unlisted(part: Part) -> Iterator[str]:
    if not part.sharded or part.metadata is None:
        return
    model: Mapping[str, Expr] = part.trees[MODEL].plain
    odd = [k for k in model if k not in part.metadata.buffers]
    if odd:
        yield (
            f"{', '.join(odd[:3])}: shard_metadata names neither a parameter nor a buffer of this name; "
            "it is taken for a copy"
        )


def whole_file(checkpoint: Checkpoint) -> Path | None:
    """The one file that holds everything unflattened, None where there are several or it is flat."""
    if len(checkpoint.parts) > 1 or checkpoint.sharded or checkpoint.shards > 1:
        return None
    return checkpoint.parts[0].shards[0].path


def place_of(checkpoint: Checkpoint, at: str | None) -> Place:
    """The state dict that ``--at`` names; the model where it is not given. Raises InputError."""
    places = {".".join(p): p for p in checkpoint.parts[0].trees}
    if at is None:
        return MODEL
    if at not in places:
        raise InputError(
            f"there is no state dict at {at!r}", where=checkpoint.family.first, problems=list(places)
        )
    return places[at]
