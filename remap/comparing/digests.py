"""Digests of tensors, and of what files hold beside them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import xxhash

from remap.expr import Expr
from remap.stream.read import BUFFER, read_expr
from remap.stream.run import MEMORY, default_jobs
from remap.types import Entry, Location, Scattered, Span

STRETCHES = 1000
"""Of a tensor's bytes in a file. What is cut finer is read twice rather than kept track of."""


def digest(expr: Expr, memory: int = MEMORY) -> str:
    """The xxh3-128 of an expression's row-major bytes, hex; the tensor is never held whole."""
    total = xxhash.xxh3_128()
    for data in read_expr(expr, memory):
        total.update(data)
    return total.hexdigest()


def digests(exprs: Mapping[str, Expr], jobs: int | None = None) -> dict[str, str]:
    """The digest of every expression, by its key."""
    with ThreadPoolExecutor(jobs or default_jobs()) as pool:
        return dict(zip(exprs, pool.map(digest, exprs.values()), strict=True))


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
