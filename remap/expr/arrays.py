"""Elements in NumPy's memory: raw while they only move, values where there is arithmetic.

A raw array holds unsigned integers of the elements' size, which NumPy moves fastest; the types that it lacks
(bfloat16, float8) are those of ml_dtypes.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from remap.dtypes import DType

Raw = NDArray[Any]
HALVES = 1 << 16
LARGEST_E4M3 = 448.0
STRIPE = 16
"""Columns that are put in place together: a line of the processor's cache or less, in every row."""


def raw_type(dtype: DType) -> np.dtype[Any]:
    """What elements of a type are while they move."""
    return np.dtype("c16" if dtype.itemsize == 16 else f"u{dtype.itemsize}")


def type_of(dtype: DType) -> np.dtype[Any]:
    """What elements of a type are as values."""
    return np.dtype(getattr(ml_dtypes, dtype.name, None) or dtype.name)


def values(raw: Raw, dtype: DType) -> NDArray[Any]:
    """The values of raw elements; no bytes move."""
    return raw.view(type_of(dtype))


def cast(array: NDArray[Any], dtype: DType) -> Raw:
    """Values as another type, raw: rounded to the nearest. What is too large becomes infinite, or no number
    where the type has no infinity; in float8_e4m3fn the largest number, as torch (2.13) has it."""
    if array.dtype == np.float16 and array.size > HALVES:
        return _looked_up(array, _of_halves(dtype))
    with np.errstate(all="ignore"):
        if dtype.name == "float8_e4m3fn":
            wide = array if array.dtype == np.float64 else array.astype(np.float32)
            array = np.clip(wide, -LARGEST_E4M3, LARGEST_E4M3)
        return array.astype(type_of(dtype), copy=False).view(raw_type(dtype))


def _looked_up(array: NDArray[Any], table: Raw) -> Raw:
    """What ``table`` says of each number of two bytes; some at a time, as NumPy widens what it looks up."""
    numbers = packed(array.view(np.uint16)).reshape(-1)
    out = np.empty(numbers.size, table.dtype)
    for start in range(0, numbers.size, HALVES):
        part = slice(start, start + HALVES)
        table.take(numbers[part], mode="wrap", out=out[part])
    return out.reshape(array.shape)


@lru_cache
def _of_halves(dtype: DType) -> Raw:
    """Every number of two bytes as another type. NumPy casts float16 one by one, in software: looking them up
    is more than twice as fast."""
    return cast(np.arange(HALVES, dtype=np.uint16).view(np.float16), dtype)


def packed(raw: Raw) -> Raw:
    """The same elements in row-major order. A transposed matrix is put together by stripes of a few columns,
    which is ten times as fast as row by row."""
    if raw.flags.c_contiguous:
        return raw
    if raw.ndim < 2 or raw.strides[-1] == raw.itemsize:
        return np.ascontiguousarray(raw)
    out = np.empty(raw.shape, raw.dtype)
    for start in range(0, raw.shape[-1], STRIPE):
        out[..., start : start + STRIPE] = raw[..., start : start + STRIPE]
    return out


def data(raw: Raw) -> memoryview:
    """The row-major bytes."""
    return packed(raw).reshape(-1).view(np.uint8).data
