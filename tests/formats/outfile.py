"""Writes an OutFile the plain way, so that formats are tested without the executor."""

from __future__ import annotations

import itertools
import zlib
from pathlib import Path

import numpy as np

from remap.expr import Take
from remap.formats.base import CopiedBytes, Literal, OutFile, Part, TensorBytes


def write(out: OutFile, folder: Path) -> Path:
    """Write ``out`` into ``folder``; only sources as they are (Take) and Permute-free copies are known."""
    chunks = [part_bytes(p) for p in out.parts]
    assert [len(c) for c in chunks] == [p.nbytes for p in out.parts]
    data = bytearray(b"".join(chunks))
    if out.seal is not None:
        for offset, patch in out.seal([zlib.crc32(c) for c in chunks]):
            data[offset : offset + len(patch)] = patch
    path = folder / out.name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def part_bytes(part: Part) -> bytes:
    """The bytes of one part."""
    if isinstance(part, Literal):
        return part.data
    if isinstance(part, CopiedBytes):
        data = part.file.read_bytes()[part.offset : part.offset + part.nbytes]
        assert part.crc32 is None or zlib.crc32(data) == part.crc32
        return data
    assert isinstance(part, TensorBytes)
    assert isinstance(part.expr, Take)
    return take_bytes(part.expr)


def take_bytes(take: Take) -> bytes:
    """Row-major bytes of a source tensor."""
    spec, place = take.spec, take.entry.location
    assert place is not None
    if spec.numel == 0:
        return b""
    size = spec.dtype.itemsize
    strides = place.strides
    if strides is None:
        strides = tuple(itertools.accumulate(spec.shape[:0:-1], lambda a, b: a * b, initial=1))[::-1][
            : len(spec.shape)
        ]
    last = sum((n - 1) * s for n, s in zip(spec.shape, strides, strict=True))
    raw = place.file.read_bytes()[place.offset : place.offset + (last + 1) * size]
    flat = np.frombuffer(raw, dtype=f"V{size}")
    view = np.lib.stride_tricks.as_strided(flat, spec.shape, tuple(s * size for s in strides))
    return np.ascontiguousarray(view).tobytes()
