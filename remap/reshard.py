"""The same tensors in other shards: read -> cut anew -> stream -> verify, as ``api.convert`` does it.

For checkpoints of metaseq. Names don't change, so there are no packs and no plan of rules; every file is
written in the likeness of one of the source's, what else is in it comes along.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from remap.dtypes import dtype as find_dtype
from remap.errors import InputError, NotACheckpoint, UsageError
from remap.formats import registry
from remap.formats.base import OutFile, TensorBytes
from remap.formats.companions import carried
from remap.formats.metaseq.checkpoint import Checkpoint, read_checkpoint
from remap.formats.metaseq.format import FORMAT, catalog_of
from remap.formats.metaseq.partition import load_partition
from remap.formats.metaseq.regroup import Regroup, Target
from remap.formats.metaseq.shards import OPTIMIZER
from remap.output import Begin, How, What, write_output
from remap.plan import Output, Plan
from remap.receipt import Receipt
from remap.stream import MEMORY
from remap.types import Catalog, Entry
from remap.verify import digest

SUFFIX = ".pt"


def reshard(
    source: str | Path,
    destination: str | Path,
    *,
    fsdp: int | None = None,
    tp: int | None = None,
    unflatten: bool = False,
    optimizer: bool = True,
    dtype: str | None = None,
    optimizer_dtype: str | None = None,
    partition: str | Path | None = None,
    replicas: str = "agree",
    jobs: int | None = None,
    memory: int = MEMORY,
    sync: bool = False,
    overwrite: bool = False,
    progress: Begin | None = None,
) -> Receipt:
    """Write the checkpoint at ``source`` with other shards or parts, whole and checked, or nothing.

    fsdp       shards of every part; as many as there are without it
    tp         model parts; as many as there are without it
    unflatten  tensors under their own names instead of flat ones; one shard
    optimizer  False leaves the optimizer's state behind
    dtype      of weights and running averages; ``optimizer_dtype`` of moments; floats only
    partition  a YAML file that says how further names are divided over parts
    replicas   "agree" refuses copies that differ between parts, "first" takes part 0's

    The rest is as in ``api.convert``. The destination is a folder, or one ``.pt`` file where there is
    one to be written. Raises InputError, UsageError.
    """
    checkpoint = find_checkpoint(Path(source))
    target = _target(checkpoint, fsdp, tp, unflatten, optimizer, dtype, optimizer_dtype)
    flattens = target.flat and not checkpoint.sharded
    if flattens:
        _check_ties(checkpoint)
    made = Regroup(
        checkpoint,
        target,
        load_partition(Path(partition) if partition else None),
        tied=(target.parts > 1 or flattens) and _is_tied(checkpoint),
        replicas=replicas,
    )
    path = Path(destination)
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
        left=[OPTIMIZER] if not optimizer and OPTIMIZER in catalog.extras else [],
    )
    how = How(jobs=jobs, memory=memory, sync=sync, overwrite=overwrite, progress=progress)

    plan = _plan(catalog, new)

    def reopen(written: Path) -> Mapping[str, Entry]:
        first = written if single else written / new[0].name
        stored = catalog_of(read_checkpoint(first), {}, stored=True).stored
        return {o.key: stored[o.key] for o in plan.outputs if o.key in stored}  # the rest came along

    return write_output(plan, what, path, how, reopen)


def find_checkpoint(path: Path) -> Checkpoint:
    """The metaseq checkpoint at ``path``: any of its files, or its folder. Raises InputError."""
    path = path.expanduser()
    if not path.exists():
        raise InputError("no such file or folder", where=path)
    found = FORMAT.find(path)
    if not found:
        others = [f.title for f, _ in registry.find(path)]
        raise NotACheckpoint(
            f"not a checkpoint of metaseq or fairscale{f', but: {others[0]}' if others else ''}",
            where=path,
            remedy="reshard knows those only; `remap convert --to` writes other formats",
        )
    registry.check_one([p.name for p in found], path)
    return read_checkpoint(found[0])


def _target(
    checkpoint: Checkpoint,
    fsdp: int | None,
    tp: int | None,
    unflatten: bool,
    optimizer: bool,
    dtype: str | None,
    optimizer_dtype: str | None,
) -> Target:
    if unflatten and (fsdp or 1) > 1:
        raise UsageError(
            f"unflattened tensors are not sharded, so there are no {fsdp} shards of them",
            remedy="leave out --unflatten or --fsdp",
        )
    flat = not unflatten and (checkpoint.sharded or fsdp is not None)
    return Target(
        parts=tp or len(checkpoint.parts),
        shards=(fsdp or checkpoint.shards) if flat else 1,
        flat=flat,
        optimizer=optimizer,
        dtype=find_dtype(dtype) if dtype else None,
        moments=find_dtype(optimizer_dtype) if optimizer_dtype else None,
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


def _plan(catalog: Catalog, files: Sequence[OutFile]) -> Plan:
    """What is to be written, as a plan: one output for every tensor in every file."""
    outputs = [
        Output(p.key, p.expr, "", (), "reshard") for f in files for p in f.parts if isinstance(p, TensorBytes)
    ]
    return Plan(catalog=catalog, outputs=tuple(outputs))


__all__ = ["find_checkpoint", "reshard"]
