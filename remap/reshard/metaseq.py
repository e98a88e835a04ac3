"""Checkpoints of metaseq, cut anew: other FSDP shards, other model parts, or unflattened.

Every file is written in the likeness of one of the source's, what else is in it comes along.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from remap.comparing.digests import digest
from remap.errors import InputError, UsageError
from remap.formats.companions import carried
from remap.formats.metaseq.checkpoint import Checkpoint, read_checkpoint
from remap.formats.metaseq.experts import rank_files
from remap.formats.metaseq.files.shards import OPTIMIZER
from remap.formats.metaseq.format import FORMAT, catalog_of
from remap.formats.metaseq.partition import load_partition
from remap.formats.metaseq.writing.regroup import Regroup, Target
from remap.output import How, What, write_output
from remap.receipt import Receipt
from remap.reshard.wanted import Wanted, plan_of
from remap.types import Entry

SUFFIX = ".pt"


def recut(root: Path, path: Path, wanted: Wanted, how: How) -> Receipt:
    """Write the checkpoint whose first file is ``root`` at ``path``. Raises InputError, UsageError."""
    checkpoint = read_checkpoint(root)
    target = _target(checkpoint, wanted)
    flattens = target.flat and not checkpoint.sharded
    if flattens:
        _check_ties(checkpoint)
    made = Regroup(
        checkpoint,
        target,
        load_partition(wanted.settings.partition),
        tied=(target.parts > 1 or flattens) and _is_tied(checkpoint),
        copies=wanted.settings.copies,
    )
    single = path.suffix == SUFFIX
    if single and target.parts * target.shards > 1:
        raise UsageError(
            f"{target.parts * target.shards} files are to be written, and {path.name} is one",
            remedy="name a folder",
        )
    catalog = catalog_of(checkpoint, {})
    new = list(made.files(path.name if single else None))
    files = new if single else [*carried(catalog.companions), *new]
    what = What(
        format=FORMAT.name,
        files=files,
        single=single,
        left=[
            *([OPTIMIZER] if not wanted.optimizer and OPTIMIZER in catalog.extras else []),
            *(f"{p.name} (experts)" for p in rank_files(root)),
        ],
    )
    plan = plan_of(catalog, new)

    def reopen(written: Path) -> Mapping[str, Entry]:
        first = written if single else written / new[0].name
        stored = catalog_of(read_checkpoint(first), {}, stored=True).stored
        return {o.key: stored[o.key] for o in plan.outputs if o.key in stored}  # the rest came along

    return write_output(plan, what, path, how, reopen)


def _target(checkpoint: Checkpoint, wanted: Wanted) -> Target:
    if wanted.unflatten and (wanted.fsdp or 1) > 1:
        raise UsageError(
            f"unflattened tensors are not sharded, so there are no {wanted.fsdp} shards of them",
            remedy="leave out --unflatten or --fsdp",
        )
    flat = not wanted.unflatten and (checkpoint.sharded or wanted.fsdp is not None)
    return Target(
        parts=wanted.tp or len(checkpoint.parts),
        shards=(wanted.fsdp or checkpoint.shards) if flat else 1,
        flat=flat,
        optimizer=wanted.optimizer,
        dtype=wanted.dtype,
        moments=wanted.optimizer_dtype,
    )


def _is_tied(checkpoint: Checkpoint) -> bool:
    """True where the output projection of a single part is its embedding: the same bytes.

    The configuration may say either; its word is taken only where the file has no projection.
    """
    if len(checkpoint.parts) > 1:
        return False
    named = checkpoint.parts[0].named()
    pair = [named.get(f"decoder.{n}.weight") for n in ("embed_tokens", "output_projection")]
    if pair[0] is None or pair[1] is None or pair[0].spec != pair[1].spec:
        return False
    return pair[0] is pair[1] or digest(pair[0]) == digest(pair[1])


def _check_ties(checkpoint: Checkpoint) -> None:
    """Raise InputError where metadata ties what the weights beside it don't: one of the two would be lost."""
    problems = []
    for part in checkpoint.parts:
        tensors = part.named()
        for alias, first in (part.metadata.aliases if part.metadata else {}).items():
            if alias in tensors and first in tensors and tensors[alias] is not tensors[first]:
                a, b = tensors[alias], tensors[first]
                if a.spec != b.spec or digest(a) != digest(b):
                    problems.append(f"{part.shards[0].path.name}: {alias} is not {first}")
    if problems:
        raise InputError(
            "shard_metadata says that tensors are tied, and they have different values",
            where=checkpoint.family.first,
            problems=problems,
            remedy="remove shard_metadata from the file: then the units are those of the partition file",
        )
