"""Nodes with arithmetic give the same in blocks of any size as in one."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from ops.values import Bench

from remap.dtypes import dtype
from remap.expr import Affine, Concat, Constant, Slice, Sum, blocks, ranges
from remap.types import TensorSpec


@pytest.mark.parametrize("budget", [1, 1000, 1 << 30])
def test_blocks_of_any_size(tmp_path: Path, budget: int) -> None:
    bench = Bench(tmp_path)
    (a, x), (b, y) = bench.source(7, 5), bench.source(7, 5)
    new = Constant(TensorSpec(dtype("f32"), (2, 5)), 1.5)
    expr = Concat((Slice(Affine(Sum((x, y)), 0.5, 3.0), 0, 1, 6), new))
    wanted = torch.cat([((a + b) * 0.5 + 3)[1:6], torch.full((2, 5), 1.5)])
    got = b"".join(bytes(m) for m in blocks.blocks(expr, budget))
    assert torch.equal(torch.frombuffer(bytearray(got), dtype=torch.float32).view(7, 5), wanted)


def test_zeros_lower_to_bytes_and_other_constants_do_not() -> None:
    spec = TensorSpec(dtype("bf16"), (3, 4))
    assert ranges.lower(Constant(spec)) == [ranges.Fill(24)]
    assert ranges.lower(Constant(spec, 1.0)) is None
    assert ranges.lower(Constant(spec, -0.0)) is None  # a bit of it is set


def test_the_peak_counts_double_precision(tmp_path: Path) -> None:
    _, x = Bench(tmp_path).source(1000, 10)
    assert blocks.peak(Sum((x, x)), 1 << 30) >= 3 * 8 * 10_000
