"""What a user asks of a resharding, and the plan of what is written of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from remap.dtypes import DType
from remap.formats.base import OutFile, TensorBytes
from remap.parallel import AS_FOUND, Settings
from remap.plan import Output, Plan
from remap.types import Catalog


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """See ``reshard``; None where nothing was said."""

    fsdp: int | None = None
    tp: int | None = None
    unflatten: bool = False
    optimizer: bool = True
    dtype: DType | None = None
    optimizer_dtype: DType | None = None
    pp: int | None = None
    settings: Settings = AS_FOUND


def plan_of(catalog: Catalog, files: Sequence[OutFile]) -> Plan:
    """What is to be written, as a plan: one output for every tensor in every file."""
    outputs = [
        Output(p.key, p.expr, "", (), "reshard") for f in files for p in f.parts if isinstance(p, TensorBytes)
    ]
    return Plan(catalog=catalog, outputs=tuple(outputs))
