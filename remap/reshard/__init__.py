"""The same tensors in other shards: read -> cut anew -> stream -> verify, as ``api.convert`` does it.

    metaseq  FSDP shards and model parts of metaseq and fairscale
    ranks    DCP folders, and the files that the ranks of torch's FSDP saved
    parallel tensor-parallel ranks and pipeline stages of DeepSpeed

Names don't change, so there are no packs and no plan of rules.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Executor
from dataclasses import replace
from pathlib import Path

from remap.dtypes import weight_dtype
from remap.errors import InputError, NotACheckpoint
from remap.files import locate
from remap.formats import registry
from remap.formats.base import Format
from remap.formats.foreign import describe
from remap.formats.undivided import Undivided
from remap.output import Begin, How
from remap.parallel import AS_FOUND, Settings
from remap.receipt import Receipt
from remap.reshard import metaseq, parallel, ranks
from remap.reshard.wanted import Wanted
from remap.stream import MEMORY

CUT = {
    "metaseq": metaseq.recut,
    "dcp": ranks.recut,
    "torch-fsdp": ranks.recut,
    "dcp-safetensors": ranks.recut,
    "deepspeed-pipeline": parallel.recut,
    "deepspeed": parallel.recut,
    "megatron": parallel.recut,
}
"""Format -> what cuts checkpoints of it."""


def reshard(
    source: str | Path,
    destination: str | Path,
    *,
    fsdp: int | None = None,
    tp: int | None = None,
    pp: int | None = None,
    unflatten: bool = False,
    optimizer: bool = True,
    dtype: str | None = None,
    optimizer_dtype: str | None = None,
    params: Mapping[str, str] | None = None,
    settings: Settings = AS_FOUND,
    jobs: int | None = None,
    memory: int = MEMORY,
    sync: bool = False,
    overwrite: bool = False,
    resume: bool = False,
    executor: str | Executor | None = None,
    progress: Begin | None = None,
) -> Receipt:
    """Write the checkpoint at ``source`` with other shards or parts, whole and checked, or nothing.

    fsdp       shards of every part, ranks of a DCP folder; as many as there are without it
    tp         model parts, tensor-parallel ranks; as many as there are without it
    pp         pipeline stages of DeepSpeed; as many as there are without it
    unflatten  tensors under their own names instead of flat ones; one shard
    optimizer  False leaves the optimizer's state behind
    dtype      of weights and running averages; ``optimizer_dtype`` of moments; floats only
    params     of the layout that says how ranks divide tensors
    settings   which layout that is, how metaseq's parts divide tensors with further names, and what copies
               that differ between parts or ranks become

    The rest is as in ``api.convert``. The destination is a folder, or one ``.pt`` file where there is
    one to be written. Raises InputError, UsageError.
    """
    name, root = _find(locate(source).expanduser())
    wanted = Wanted(
        fsdp=fsdp,
        tp=tp,
        unflatten=unflatten,
        optimizer=optimizer,
        dtype=weight_dtype(dtype) if dtype else None,
        optimizer_dtype=weight_dtype(optimizer_dtype) if optimizer_dtype else None,
        pp=pp,
        settings=replace(settings, params=params or {}),
    )
    how = How(
        jobs=jobs,
        memory=memory,
        sync=sync,
        overwrite=overwrite,
        resume=resume,
        executor=executor,
        progress=progress,
    )
    return CUT[name](root, locate(destination), wanted, how)


def _find(path: Path) -> tuple[str, Path]:
    """The format and the root of the one checkpoint at ``path`` that can be cut. Raises InputError."""
    if not path.exists():
        raise InputError("no such file or folder", where=path)
    found = registry.find(path)
    mine = [(f.name, root) for f, root in found if f.name in CUT]
    if not mine:
        what = f"{found[0][0].title}: whole tensors, which are not cut" if found else describe(path)
        raise NotACheckpoint(what, where=path, remedy=_elsewhere(found[0][0]) if found else None)
    registry.check_one([root.name for _, root in mine], path)
    return mine[0]


def _elsewhere(fmt: Format) -> str:
    """How whole tensors are cut over ranks."""
    if isinstance(fmt, Undivided):
        return "`remap convert SRC DST --tp N` writes it for N tensor-parallel ranks"
    return (
        "`remap convert SRC DST --to dcp --ranks N` cuts them over ranks for torch; for metaseq "
        "convert them first (--to metaseq, OPT of Hugging Face with -r opt/hf-to-metaseq)"
    )


__all__ = ["reshard"]
