"""Products give what torch gives, in blocks of any size, whatever is sliced off them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from ops.values import Bench

from remap.errors import UsageError
from remap.expr import Expr, Lengths, LowRank, Normed, Permute, Reshape, Slice, Times, blocks


def values(expr: Expr, budget: int) -> torch.Tensor:
    data = b"".join(bytes(m) for m in blocks.blocks(expr, budget))
    return torch.frombuffer(bytearray(data), dtype=torch.float32).view(expr.spec.shape)


@pytest.mark.parametrize("budget", [1, 1 << 30])
def test_low_rank_is_the_scaled_product(tmp_path: Path, budget: int) -> None:
    bench = Bench(tmp_path)
    (b, left), (a, right) = bench.source(7, 3), bench.source(3, 5)
    whole = LowRank(left, right, 0.5)
    torch.testing.assert_close(values(whole, budget), b @ a * 0.5)
    torch.testing.assert_close(values(Slice(whole, 1, 2, 4), budget), (b @ a * 0.5)[:, 2:4])
    torch.testing.assert_close(values(Permute(whole, (1, 0)), budget), (b @ a * 0.5).T)


@pytest.mark.parametrize("budget", [1, 1 << 30])
def test_leading_dimensions_are_a_batch(tmp_path: Path, budget: int) -> None:
    bench = Bench(tmp_path)
    (b, left), (a, right) = bench.source(4, 7, 3), bench.source(4, 3, 5)
    torch.testing.assert_close(values(LowRank(left, right), budget), b @ a)


@pytest.mark.parametrize("budget", [1, 1 << 30])
def test_times_stretches_its_second_factor(tmp_path: Path, budget: int) -> None:
    bench = Bench(tmp_path)
    (w, weight), (r, rows) = bench.source(7, 5), bench.source(7)
    by = Reshape(rows, (7, 1))
    torch.testing.assert_close(values(Times(weight, by), budget), w * r[:, None])
    across = Times(Permute(weight, (1, 0)), Permute(by, (1, 0)))
    torch.testing.assert_close(values(across, budget), (w * r[:, None]).T)


@pytest.mark.parametrize("budget", [1, 1 << 30])
def test_normed_rows_have_the_given_lengths(tmp_path: Path, budget: int) -> None:
    bench = Bench(tmp_path)
    (w, weight), (m, lengths) = bench.source(7, 5), bench.source(7, 1)
    wanted = w * (m / w.norm(dim=1, keepdim=True))
    torch.testing.assert_close(values(Normed(weight, lengths), budget), wanted)
    torch.testing.assert_close(values(Slice(Normed(weight, lengths), 1, 1, 3), budget), wanted[:, 1:3])


@pytest.mark.parametrize("budget", [1, 1 << 30])
def test_lengths_of_rows(tmp_path: Path, budget: int) -> None:
    w, weight = Bench(tmp_path).source(7, 5)
    torch.testing.assert_close(values(Lengths(weight), budget), w.norm(dim=1, keepdim=True))


def test_shapes_are_checked_when_a_product_is_built(tmp_path: Path) -> None:
    _, x = Bench(tmp_path).source(7, 5)
    with pytest.raises(UsageError, match=r"matrices of shapes \[7, 5\] and \[7, 5\]"):
        LowRank(x, x)
    with pytest.raises(UsageError, match=r"shapes \[7, 5\] and \[5, 7\]"):
        Times(x, Permute(x, (1, 0)))
    with pytest.raises(UsageError, match="lengths"):
        Normed(x, x)
    with pytest.raises(UsageError, match="lengths"):
        Lengths(Reshape(x, (35,)))


def test_memory_is_bounded_by_blocks_of_rows(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    (_, left), (_, right) = bench.source(4096, 4), bench.source(4, 64)
    whole = LowRank(left, right)
    assert blocks.peak(whole, 1 << 30) > 4 * 4096 * 64
    assert blocks.peak(whole, 3 << 20) <= 3 << 20
