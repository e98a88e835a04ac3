"""Is an output what it should be? Headers against a plan, digests against a receipt."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import xxhash

from remap.errors import Damaged, VerifyError
from remap.expr import Expr, Take
from remap.partitions.base import Copies
from remap.partitions.replicated import Replicated
from remap.plan import Plan
from remap.receipt import Receipt
from remap.stream.read import BUFFER, read_expr
from remap.stream.run import MEMORY, default_jobs
from remap.types import Catalog, Entry, Location, Scattered, Span

STRETCHES = 1000
"""Of a tensor's bytes in a file. What is cut finer is read twice rather than kept track of."""


def check_headers(plan: Plan, written: Mapping[str, Entry]) -> None:
    """Raise VerifyError unless ``written``, re-opened, has just the plan's keys with their specs."""
    wanted = {o.key: o.expr.spec for o in plan.outputs}
    problems = [f"{k}: missing from the output" for k in wanted if k not in written]
    problems += [f"{k}: not in the plan" for k in written if k not in wanted]
    problems += [
        f"{k}: planned {spec}, found {written[k].spec}"
        for k, spec in wanted.items()
        if k in written and written[k].spec != spec
    ]
    if problems:
        raise VerifyError("the output is not what the plan says; it was discarded", problems=problems)


def check_copies(catalog: Catalog, copies: Copies) -> list[str]:
    """A warning for replicated tensors that differ between the ranks of ``catalog``, with the largest
    difference. Raises Damaged instead where copies must agree (``error``)."""
    held = [k for k, cls in catalog.partitions.items() if isinstance(cls, Replicated)]
    tables = [{k: Take(t[k]) for k in held} for t in catalog.ranks]
    first, *others = [digests(t) for t in tables] or [{}]
    apart = [k for k in held if any(found[k] != first[k] for found in others)]
    if not apart:
        return []
    largest = {k: max(difference(tables[0][k], t[k]) for t in tables[1:]) for k in apart}
    lines = [f"{k}: by up to {n:.3g}" for k, n in sorted(largest.items(), key=lambda item: -item[1])]
    if copies == "error":
        raise Damaged(
            f"{len(apart)} tensors of which every rank has a copy differ between ranks",
            where=catalog.root,
            problems=lines,
            remedy="ranks of a long run drift apart: --on-disagree mean averages them, first takes rank 0's",
        )
    took = {"first": "that of rank 0 was taken", "mean": "they were averaged"}[copies]
    return [f"{len(apart)} tensors differ between ranks, {took}; most {lines[0]}"]


def difference(a: Expr, b: Expr) -> float:
    """The largest difference between the elements of two tensors of one shape."""
    from remap.expr.blocks import evaluate

    return float((evaluate(a).double() - evaluate(b).double()).abs().max())


def digest(expr: Expr, memory: int = MEMORY) -> str:
    """The xxh3-128 of an expression's row-major bytes, hex; the tensor is never held whole."""
    total = xxhash.xxh3_128()
    for data in read_expr(expr, memory):
        total.update(data)
    return total.hexdigest()


def other_bytes(files: Mapping[str, Path], entries: Iterable[Entry]) -> dict[str, str]:
    """The xxh3-128 (hex) of what each file holds beside the tensors of ``entries``: headers, pickles,
    checksums, an optimizer. A tensor that doesn't lie in a few stretches counts as the file's."""
    spans: dict[Path, list[tuple[int, int]]] = {}
    for entry in entries:
        for span in _stretches(entry):
            spans.setdefault(span.file, []).append((span.offset, span.nbytes))
    with ThreadPoolExecutor(default_jobs()) as pool:
        found = pool.map(lambda path: _beside(path, sorted(spans.get(path, ()))), files.values())
        return dict(zip(files, found, strict=True))


def _stretches(entry: Entry) -> Sequence[Span]:
    where = entry.location
    if isinstance(where, Location) and where.strides is None:
        return [Span(where.file, where.offset, entry.spec.nbytes)]
    return where.spans if isinstance(where, Scattered) and len(where.spans) <= STRETCHES else []


def _beside(path: Path, spans: Iterable[tuple[int, int]]) -> str:
    total = xxhash.xxh3_128()
    with path.open("rb") as f:
        size = f.seek(0, os.SEEK_END)
        at = 0
        for offset, nbytes in (*spans, (size, 0)):
            f.seek(at)
            while at < offset:
                data = f.read(min(BUFFER, offset - at))
                if not data:
                    return ""
                total.update(data)
                at += len(data)
            at = max(at, offset + nbytes)
    return total.hexdigest()


def check_files(receipt: Receipt, folder: Path, entries: Mapping[str, Entry]) -> list[str]:
    """One line for each file of the receipt that is not as it was written, tensors aside; ``folder`` holds
    them, and ``entries`` is what a reader found in them."""
    problems = []
    there = {}
    for name, file in receipt.files.items():
        path = folder / name
        if not path.is_file():
            problems.append(f"{name}: missing")
        elif path.stat().st_size != file.size:
            problems.append(f"{name}: {path.stat().st_size} bytes, the receipt says {file.size}")
        else:
            there[name] = path
    found = other_bytes(there, [e for k, e in entries.items() if k in receipt.tensors])
    return problems + [
        f"{name}: what it holds beside tensors is not what was written"
        for name, digest in found.items()
        if digest != receipt.files[name].xxh3_128
    ]


def digests(exprs: Mapping[str, Expr], jobs: int | None = None) -> dict[str, str]:
    """The digest of every expression, by its key."""
    with ThreadPoolExecutor(jobs or default_jobs()) as pool:
        return dict(zip(exprs, pool.map(digest, exprs.values()), strict=True))


def check_receipt(receipt: Receipt, catalog: Catalog) -> list[str]:
    """Re-read every tensor of ``catalog``; one line for each way in which it departs from the receipt."""
    entries = held_by(catalog, receipt)
    problems = [f"{k}: missing" for k in receipt.tensors if k not in entries]
    problems += [
        f"{k}: not in the receipt"
        for k in catalog.entries
        if entries is catalog.entries and k not in receipt.tensors
    ]
    both = {k: Take(e) for k, e in entries.items() if k in receipt.tensors}
    found = digests(both)
    for key, take in both.items():
        tensor = receipt.tensors[key]
        if (take.spec.dtype.name, list(take.spec.shape)) != (tensor.dtype, tensor.shape):
            problems.append(f"{key}: {take.spec}, the receipt says {tensor.dtype}{tensor.shape}")
        elif found[key] != tensor.xxh3_128:
            problems.append(f"{key}: its bytes have digest {found[key]}, the receipt says {tensor.xxh3_128}")
    return problems


def held_by(catalog: Catalog, receipt: Receipt) -> Mapping[str, Entry]:
    """The tensors that a receipt speaks of: those of the model by name, or (after a reshard) as the files
    hold them."""
    return catalog.stored if receipt.tensors.keys() & catalog.stored.keys() else catalog.entries


def check_digests(receipt: Receipt, plan: Plan) -> list[str]:
    """One line for each tensor that ``plan``, made anew, gives other bytes than the receipt says."""
    found = digests({o.key: o.expr for o in plan.outputs})
    problems = [f"{k}: the source does not give it" for k in receipt.tensors if k not in found]
    problems += [
        f"{k}: the source gives it, the receipt has it not" for k in found if k not in receipt.tensors
    ]
    problems += [
        f"{k}: the source gives digest {found[k]}, the receipt says {t.xxh3_128}"
        for k, t in receipt.tensors.items()
        if k in found and found[k] != t.xxh3_128
    ]
    return problems
