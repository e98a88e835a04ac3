"""Flat tensors cut over N ranks, over M, and over N again: fairscale's pieces, and the identity."""

from __future__ import annotations

import itertools

import pytest
import torch
from formats.metaseq.samples import cut

from remap.expr import Take
from remap.expr.blocks import evaluate
from remap.formats.metaseq.line import Line, shard_padding
from remap.types import Entry, Location, TensorSpec

RANKS = [*range(1, 9), 256]


@pytest.fixture(scope="module")
def numbers(tmp_path_factory):
    """numel -> the first so many numbers from 1 up, in a file."""
    path = tmp_path_factory.mktemp("line") / "numbers"
    path.write_bytes(torch.arange(1.0, 600).numpy().tobytes())

    def take(numel: int) -> Take:
        return Take(Entry("numbers", TensorSpec.parse(f"f32[{numel}]"), Location(path, 0)))

    return take


def shards(line: Line, ranks: int) -> list:
    return [line.shard(rank, ranks) for rank in range(ranks)]


@pytest.mark.parametrize("numel", [1, 2, 5, 9, 10, 24, 255, 256, 257, 515])
def test_there_and_back_is_the_identity_for_every_pair(numel, numbers):
    whole = torch.arange(1.0, numel + 1)
    line = Line((numbers(numel),))
    wanted = {n: [cut(whole, n, rank) for rank in range(n)] for n in RANKS}
    for n, m in itertools.product(RANKS, RANKS):
        there = shards(Line.of_shards(shards(line, n), numel), m)
        back = shards(Line.of_shards(there, numel), n)
        checked = range(n) if n < 9 else (0, 1, 127, 128, 254, 255)
        for rank in checked:
            piece, padding = wanted[n][rank]
            assert shard_padding(numel, n, rank) == padding
            assert evaluate(back[rank]).equal(piece), (n, m, rank)
