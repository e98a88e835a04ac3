"""The receipt: what a conversion leaves beside its output.

It says which packs ran with which parameters, what they read, and the xxh3-128 digest of every
tensor's row-major bytes, taken while they passed. ``remap verify`` checks an output against it, and
the way back takes from it how names were spelled. No date, host or absolute path is in it: the same
input gives the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from remap.documents import is_below, parse_as, read_document
from remap.errors import Hostile, UsageError
from remap.partitions.base import Copies
from remap.plan import Plan
from remap.types import Catalog
from remap.version import __version__

RECEIPT = "remap.receipt.json"
VERSION = 1
BY_ADAPTER = "remap adapter"
"""The step of an output that packs alone did not make: of two sources, or of an adapter."""


class Tensor(msgspec.Struct, frozen=True):
    """One tensor of the output: spec, digest, and the source keys that it is made of."""

    dtype: str
    shape: list[int]
    xxh3_128: str
    sources: list[str]
    rule: str | None


class Dropped(msgspec.Struct, frozen=True):
    """A source key that the output has no more, and why."""

    key: str
    rule: str
    because: str


class Step(msgspec.Struct, frozen=True):
    """A pack that ran."""

    pack: str
    version: str
    digest: str
    inverse: bool
    params: dict[str, object]


class Source(msgspec.Struct, frozen=True):
    """What was read: name, format, the size in bytes of each file, and where in it (``--at``)."""

    name: str
    format: str
    files: dict[str, int]
    at: str | None = None


class File(msgspec.Struct, frozen=True):
    """One file of the output: its size in bytes, and the digest of what it holds beside the tensors."""

    size: int
    xxh3_128: str


class Parallel(msgspec.Struct, frozen=True):
    """How ranks were merged and divided: their number, stages, and what was said of layouts."""

    tp: int | None
    pp: int | None
    layout: str | None
    params: dict[str, str]
    copies: Copies
    padded: bool


class Receipt(msgspec.Struct, frozen=True):
    """The whole document; see the module's docstring. ``at`` is where in the output the tensors lie."""

    version: int
    remap: str
    format: str
    source: Source
    steps: list[Step]
    again: list[str]
    dtype: str | None
    tensors: dict[str, Tensor]
    drops: list[Dropped]
    left_behind: list[str]
    warnings: list[str]
    files: dict[str, File]
    at: str | None = None
    parallel: Parallel | None = None

    @property
    def nbytes(self) -> int:
        """Bytes of all files."""
        return sum(f.size for f in self.files.values())

    def encode(self) -> bytes:
        """The document as indented JSON."""
        return msgspec.json.format(msgspec.json.encode(self), indent=1) + b"\n"


def make(
    plan: Plan,
    fmt: str,
    digests: Mapping[str, str],
    files: Mapping[str, File],
    left: Sequence[str],
    at: str | None = None,
    again: Sequence[str] = (),
    notes: Sequence[str] = (),
    parallel: Parallel | None = None,
) -> Receipt:
    """The receipt of a finished conversion.

    digests  output key -> digest
    left     what was not carried along
    at       where in the output the tensors lie, None where they are found
    again    rules that were applied to names that they made
    notes    warnings beside those of the source
    parallel  how it was divided, None where it was not
    """
    catalog = plan.catalog
    return Receipt(
        version=VERSION,
        remap=__version__,
        format=fmt,
        source=Source(
            catalog.root.name, catalog.format, {f.name: f.stat().st_size for f in catalog.files}, catalog.at
        ),
        steps=[Step(s.pack, s.version, s.digest, s.inverse, dict(s.params)) for s in plan.steps],
        again=sorted(again),
        dtype=plan.cast.name if plan.cast else None,
        tensors={
            o.key: Tensor(
                o.expr.spec.dtype.name, list(o.expr.spec.shape), digests[o.key], list(o.sources), o.rule
            )
            for o in plan.outputs
        },
        drops=[Dropped(d.key, d.rule, d.because) for d in plan.drops],
        left_behind=list(left),
        warnings=[*catalog.warnings, *notes],
        files=dict(files),
        at=at,
        parallel=parallel,
    )


def receipt_path(destination: Path) -> Path:
    """Where the receipt of an output lies: in a folder, or beside a single file."""
    return (
        destination / RECEIPT
        if destination.is_dir()
        else destination.with_name(f"{destination.name}.receipt.json")
    )


def read(path: Path) -> Receipt:
    """Read a receipt. Raises InputError, Damaged; UsageError for a version of the future."""
    data = read_document(path)
    version = parse_as(_Versioned, data, "a receipt", path).version
    if version > VERSION:
        raise UsageError(f"the receipt has version {version}", where=path, remedy="use a newer remap")
    found = parse_as(Receipt, data, "a receipt", path)
    outside = [n for n in found.files if not is_below(n)]
    if outside:
        raise Hostile("the receipt names files outside its folder", where=path, problems=map(repr, outside))
    return found


class _Versioned(msgspec.Struct):
    version: int


def beside(destination: Path) -> Receipt | None:
    """The receipt that lies in a folder, or beside a file or in its folder and lists it; None where
    there is none."""
    for path in (receipt_path(destination), destination.parent / RECEIPT):
        if path.is_file():
            found = read(path)
            if destination.is_dir() or destination.name in {Path(n).name for n in found.files}:
                return found
    return None


def locate(catalog: Catalog) -> tuple[Receipt, Path] | None:
    """The receipt that was left with a checkpoint, and the folder that its file names are relative to;
    None where there is none that lists any of its files."""
    for path in places(catalog):
        if path.is_file():
            found = read(path)
            if {f.name for f in catalog.files} & {Path(n).name for n in found.files}:
                return found, path.parent
    return None


def find(catalog: Catalog) -> Receipt | None:
    """The receipt that was left with a checkpoint, None where there is none."""
    found = locate(catalog)
    return found[0] if found else None


def places(catalog: Catalog) -> Iterator[Path]:
    """Where the receipt of a checkpoint may lie, the nearest first."""
    root = catalog.root
    if root.is_file():
        yield receipt_path(root)
        yield root.parent / RECEIPT
    else:
        yield root / RECEIPT
        yield root.parent / RECEIPT  # the step folder's parent
