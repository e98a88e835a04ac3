"""Casts give what torch's give, bit for bit; where a value is no number, both say so."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import torch

from remap.dtypes import TABLE, dtype
from remap.expr import Cast, Take, blocks
from remap.types import Entry, Location, TensorSpec

FLOATS = [t.name for t in TABLE if t.is_float]
INTEGERS = ["int64", "int32", "int16", "int8", "uint8", "bool"]


def samples(name: str) -> torch.Tensor:
    """Any bits: small, subnormal, huge and infinite values, with both signs; for wide types also those that
    halves and bytes can hold, and their neighbours."""
    kind = getattr(torch, name)
    size = dtype(name).itemsize
    bits = torch.from_numpy(np.random.default_rng(0).integers(0, 256, 1 << 16, dtype=np.uint8))
    if name == "bool":
        return bits > 127
    found = bits.view(kind)
    if name in FLOATS and size > 2:
        near = torch.arange(-70_000, 70_000, 3, dtype=torch.float64)
        found = torch.cat([found, (near / 64).to(kind), (near * 2.0**-30).to(kind), (near * 7).to(kind)])
    return found.repeat(3)  # more than there are values of two bytes


@pytest.mark.parametrize(("source", "target"), [*product(FLOATS, FLOATS), *product(INTEGERS, FLOATS)])
def test_every_cast_to_floats_is_torchs(tmp_path, source, target):
    value = samples(source)
    (tmp_path / "x").write_bytes(value.view(torch.uint8).numpy().tobytes())
    entry = Entry("x", TensorSpec(dtype(source), tuple(value.shape)), Location(tmp_path / "x", 0))
    got = blocks.evaluate(Cast(Take(entry), dtype(target))).double()
    wanted = value.to(getattr(torch, target)).double()
    assert torch.equal(got.isnan(), wanted.isnan())
    assert torch.equal(got.nan_to_num(1.5), wanted.nan_to_num(1.5))
    assert torch.equal(got.signbit() | got.isnan(), wanted.signbit() | wanted.isnan())
