"""One tensor whole in memory, its elements as raw bytes of their size; what only moves needs no torch.

A tensor that files hold is read; one that is pieces of several is put together with NumPy. What is
computed (a cast, a sum) is torch's work, as in ``remap.expr.blocks``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from zlib_ng.zlib_ng import crc32

from remap.dtypes import dtype
from remap.errors import Damaged, UsageError
from remap.expr import Concat, Expr, Permute, Reshape, Same, Slice, Take, ranges
from remap.stream.read import BUFFER, Sources, belied, read_expr, read_runs
from remap.stream.run import MEMORY
from remap.types import Derived, Entry, Location, TensorSpec

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def whole(entry: Entry) -> bytearray:
    """The row-major bytes of a tensor, its checksum compared where its file has one.

    Raises Damaged, and UsageError where only the key list is known, or where the tensor has to be
    computed and torch is not installed.
    """
    runs = ranges.lower(Take(entry))
    if runs is not None:
        return _read(entry, runs)
    if isinstance(entry.location, Location):
        return _gathered(entry, entry.location)
    if isinstance(entry.location, Derived) and _only_moves(entry.location.expr):
        return bytearray(_moved(entry.location.expr).tobytes())
    return _computed(entry)


def _read(entry: Entry, runs: list[ranges.Run]) -> bytearray:
    data = bytearray(entry.spec.nbytes)
    into = memoryview(data)
    crc = filled = 0

    def room() -> memoryview:
        return into[filled : filled + BUFFER]

    with Sources() as sources:
        for piece in read_runs(runs, sources, room):
            crc = crc32(piece, crc)
            filled += len(piece)
    where = entry.location
    if where is not None and where.crc32 not in (None, crc):
        raise belied(crc, where.crc32, f"{where.file}: {entry.key}")
    return data


def _gathered(entry: Entry, where: Location) -> bytearray:
    """The elements of a strided tensor: all between its first and last are read, and picked from."""
    import numpy as np

    spec, strides = entry.spec, where.strides or ()
    size = spec.dtype.itemsize
    reach = size * (1 + sum((n - 1) * s for n, s in zip(spec.shape, strides, strict=True)))
    covered = Entry(entry.key, TensorSpec(dtype("uint8"), (reach,)), Location(where.file, where.offset))
    elements = np.frombuffer(whole(covered), dtype=f"V{size}")
    view = np.lib.stride_tricks.as_strided(elements, spec.shape, [s * size for s in strides])
    return bytearray(view.tobytes())


def _only_moves(expr: Expr) -> bool:
    return isinstance(expr, (Take, Slice, Concat, Reshape, Permute, Same)) and all(
        map(_only_moves, expr.children)
    )


def _moved(expr: Expr) -> NDArray[np.void]:
    """The elements of an expression that only moves them."""
    import numpy as np

    if isinstance(expr, Take):
        return np.frombuffer(whole(expr.entry), dtype=f"V{expr.spec.dtype.itemsize}").reshape(expr.spec.shape)
    parts: list[NDArray[np.void]] = [_moved(child) for child in expr.children]
    found = parts[0]
    if isinstance(expr, Slice):
        found = found[(slice(None),) * expr.dim + (slice(expr.start, expr.stop),)]
    elif isinstance(expr, Concat):
        found = np.concatenate(parts, axis=expr.dim)
    elif isinstance(expr, Reshape):
        found = found.reshape(expr.shape)
    elif isinstance(expr, Permute):
        found = found.transpose(expr.dims)
    elif any(p.tobytes() != found.tobytes() for p in parts[1:]):
        raise Damaged("copies of one tensor do not agree", where=_origin(expr))
    return found


def _origin(expr: Expr) -> str:
    """File and key of the first tensor."""
    while not isinstance(expr, Take):
        expr = expr.children[0]
    where = expr.entry.location
    return f"{where.file}: {expr.entry.key}" if where else expr.entry.key


def _computed(entry: Entry) -> bytearray:
    data = bytearray(entry.spec.nbytes)
    into = memoryview(data)
    try:
        for block in read_expr(Take(entry), MEMORY):
            into[: len(block)] = block
            into = into[len(block) :]
    except ImportError:
        raise UsageError(
            "it has to be computed, which takes torch", where=entry.key, remedy="install torch"
        ) from None
    return data
