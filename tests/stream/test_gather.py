"""Many short runs: read file by file, each put in its place."""

from __future__ import annotations

import os
import random

import pytest

from remap.errors import Damaged
from remap.expr.ranges import Fill
from remap.stream import gather as module
from remap.stream.gather import gather
from remap.stream.read import Sources, read_runs
from remap.types import Span


@pytest.fixture
def files(tmp_path):
    """Three files of random bytes."""
    generator = random.Random(0)
    paths = [tmp_path / name for name in "abc"]
    for path in paths:
        path.write_bytes(generator.randbytes(5000))
    return paths


def expected(runs) -> bytes:
    return b"".join(
        bytes(r.nbytes) if isinstance(r, Fill) else r.file.read_bytes()[r.offset : r.offset + r.nbytes]
        for r in runs
    )


def columns(files, width: int, rows: int) -> list[Span]:
    return [Span(f, row * width, width) for row in range(rows) for f in files]


def all_of(runs, size: int) -> bytes:
    buffer = memoryview(bytearray(size))
    with Sources() as sources:
        return b"".join(bytes(piece) for piece in read_runs(runs, sources, lambda: buffer))


def test_columns_of_three_files_take_a_call_each(files, monkeypatch):
    calls = []
    preadv = os.preadv
    monkeypatch.setattr(os, "preadv", lambda *a: calls.append(a[2]) or preadv(*a))
    runs = columns(files, 10, 100)
    assert all_of(runs, 3000) == expected(runs)
    assert calls == [0, 0, 0]


@pytest.mark.parametrize("size", [1, 7, 64, 1000, 1 << 20])
@pytest.mark.parametrize("seed", range(5))
def test_any_runs_come_in_order(seed, size, files, monkeypatch):
    generator = random.Random(seed)
    monkeypatch.setattr(module, "SHORT", generator.choice([1, 50, 1 << 16]))
    monkeypatch.setattr(module, "AT_ONCE", generator.choice([1, 3, 1024]))
    runs = []
    for _ in range(200):
        n = generator.randrange(1, 90)
        last = runs[-1] if runs and isinstance(runs[-1], Span) else None
        if generator.random() < 0.1:
            runs.append(Fill(n))
        elif last and generator.random() < 0.5 and last.offset + last.nbytes + n < 5000:
            runs.append(Span(last.file, last.offset + last.nbytes, n))
        else:
            runs.append(Span(generator.choice(files), generator.randrange(4900), n))
    assert all_of(runs, size) == expected(runs)


def test_a_call_may_give_less_than_was_asked_for(files, monkeypatch):
    preadv = os.preadv
    monkeypatch.setattr(os, "preadv", lambda fd, places, at: preadv(fd, [places[0][:7]], at))
    runs = columns(files, 10, 50)
    assert all_of(runs, 1000) == expected(runs)


def test_a_run_that_is_not_short_is_left_to_others(files):
    into = memoryview(bytearray(1 << 20))
    with Sources() as sources:
        assert gather([Span(files[0], 0, module.SHORT)], 0, into, sources.fd) == (0, 0)
        assert gather([Span(files[0], 0, 11)], 0, into[:10], sources.fd) == (0, 0)


def test_a_file_that_ends_too_early_is_named(files):
    with pytest.raises(Damaged, match="ends at byte 5000, 10 bytes too early") as caught:
        all_of([Span(files[0], 4980, 10), Span(files[1], 0, 10), Span(files[0], 4990, 20)], 100)
    assert caught.value.where == str(files[0])
