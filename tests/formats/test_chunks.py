"""Boxes put together: any grid gives the bytes of the whole, gaps and overlaps are named."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest

from remap.dtypes import dtype
from remap.errors import Damaged, InputError
from remap.formats import chunks
from remap.formats.chunks import Box, assemble
from remap.types import Location, Scattered, Span, TensorSpec

I32 = dtype("int32")


def cut(whole: np.ndarray, cuts: list[list[int]], folder, *, by_columns: bool = False) -> list[Box]:
    """``whole`` in boxes between ``cuts`` of each dimension, a file each."""
    boxes = []
    sides = [list(itertools.pairwise([0, *c, n])) for c, n in zip(cuts, whole.shape, strict=True)]
    for number, ranges in enumerate(itertools.product(*sides)):
        piece = whole[tuple(slice(a, b) for a, b in ranges)]
        order = "F" if by_columns else "C"
        (folder / str(number)).write_bytes(b"head" + piece.tobytes(order))
        strides = tuple(s // 4 for s in np.asarray(piece, order=order).strides)
        place = Location(folder / str(number), 4, strides if by_columns else None)
        boxes.append(Box(tuple(a for a, _ in ranges), piece.shape, place))
    return boxes


def read(place: Location | Scattered, nbytes: int) -> bytes:
    if isinstance(place, Location):
        assert place.strides is None
        return place.file.read_bytes()[place.offset : place.offset + nbytes]
    return b"".join(s.file.read_bytes()[s.offset : s.offset + s.nbytes] for s in place.spans)


@pytest.mark.parametrize("by_columns", [False, True])
@pytest.mark.parametrize(
    "cuts",
    [
        [[2, 4], [], []],  # rows, as FSDP cuts
        [[], [1, 3], []],  # columns, as row-parallel layers are
        [[2], [3], [2]],
        [[1, 1], [], []],  # a rank without rows
        [[], [], [1, 2, 3]],
    ],
)
def test_a_tensor_cut_anywhere_is_put_together(cuts, by_columns, tmp_path):
    whole = np.arange(5 * 4 * 4, dtype=np.int32).reshape(5, 4, 4)
    boxes = cut(whole, cuts, tmp_path, by_columns=by_columns)
    place = assemble(TensorSpec(I32, whole.shape), boxes[::-1], "k")
    assert read(place, whole.nbytes) == whole.tobytes()


def halved(
    offsets: list[int], sizes: list[int], generator: random.Random
) -> list[tuple[list[int], list[int]]]:
    """A box cut in two, and its parts again, now and then."""
    dims = [d for d, n in enumerate(sizes) if n > 1]
    if not dims or generator.random() < 0.3:
        return [(offsets, sizes)]
    d = generator.choice(dims)
    k = generator.randrange(1, sizes[d])
    after = [o + k * (i == d) for i, o in enumerate(offsets)]
    first, second = ([*sizes[:d], n, *sizes[d + 1 :]] for n in (k, sizes[d] - k))
    return halved(offsets, first, generator) + halved(after, second, generator)


@pytest.mark.parametrize("seed", range(30))
def test_boxes_of_any_cuts(seed, tmp_path):
    generator = random.Random(seed)
    shape = [generator.randrange(1, 7) for _ in range(generator.randrange(1, 5))]
    whole = np.arange(np.prod(shape), dtype=np.int32).reshape(shape)
    parts = halved([0] * len(shape), shape, generator)
    generator.shuffle(parts)
    boxes = []
    for number, (offsets, sizes) in enumerate(parts):
        piece = whole[tuple(slice(o, o + n) for o, n in zip(offsets, sizes, strict=True))]
        by_columns = generator.random() < 0.3
        (tmp_path / str(number)).write_bytes(piece.tobytes("F" if by_columns else "C"))
        strides = tuple(s // 4 for s in np.asarray(piece, order="F").strides) if by_columns else None
        boxes.append(Box(tuple(offsets), tuple(sizes), Location(tmp_path / str(number), 0, strides)))
    place = assemble(TensorSpec(I32, tuple(shape)), boxes, "k")
    if isinstance(place, Location) and place.strides is not None:
        assert place is boxes[0].place
    else:
        assert read(place, whole.nbytes) == whole.tobytes()


def test_boxes_need_no_grid(tmp_path):
    whole = np.arange(16, dtype=np.int32).reshape(4, 4)
    (tmp_path / "all").write_bytes(whole.tobytes())

    def box(rows: slice, columns: slice) -> Box:
        first = rows.start * 4 + columns.start
        sizes = (rows.stop - rows.start, columns.stop - columns.start)
        return Box((rows.start, columns.start), sizes, Location(tmp_path / "all", first * 4, (4, 1)))

    boxes = [
        box(slice(0, 3), slice(0, 1)),
        box(slice(0, 1), slice(1, 4)),
        box(slice(1, 4), slice(3, 4)),
        box(slice(3, 4), slice(0, 3)),
        box(slice(1, 3), slice(1, 3)),
    ]
    assert read(assemble(TensorSpec(I32, (4, 4)), boxes, "k"), 64) == whole.tobytes()


def test_rows_that_follow_each_other_are_one_span(tmp_path):
    boxes = [Box((i, 0), (1, 4), Location(tmp_path, 100 + 16 * i)) for i in range(6)]
    assert assemble(TensorSpec(I32, (6, 4)), boxes, "k") == Location(tmp_path, 100)


def test_a_whole_box_keeps_its_checksum_and_strides(tmp_path):
    place = Location(tmp_path, 8, (1, 2), crc32=7)
    assert assemble(TensorSpec(I32, (2, 2)), [Box((0, 0), (2, 2), place)], "k") is place


def test_copies_of_a_box_count_once(tmp_path):
    boxes = [Box((0,), (3,), Location(tmp_path / name, 0)) for name in ("a", "b")]
    assert assemble(TensorSpec(I32, (3,)), boxes, "k") == Location(tmp_path / "a", 0)


def test_a_scalar_and_an_empty_tensor(tmp_path):
    place = Location(tmp_path, 4)
    assert assemble(TensorSpec(I32, ()), [Box((), (), place)], "k") is place
    assert assemble(TensorSpec(I32, (0, 3)), [Box((0, 0), (0, 3), place)], "k") is place


@pytest.mark.parametrize("missing", range(6))
def test_a_gap_is_named(missing, tmp_path):
    whole = np.zeros((4, 6), dtype=np.int32)
    boxes = cut(whole, [[2], [2, 4]], tmp_path)
    del boxes[missing]
    with pytest.raises(Damaged, match=r"a part of it is missing, from element"):
        assemble(TensorSpec(I32, (4, 6)), boxes, "file: k")


def test_an_overlap_is_named(tmp_path):
    place = Location(tmp_path, 0)
    with pytest.raises(Damaged, match="overlap") as caught:
        assemble(TensorSpec(I32, (4,)), [Box((0,), (3,), place), Box((2,), (2,), place)], "file: k")
    assert caught.value.problems == ("[0:3]", "[2:4]")
    hidden = [Box((0,), (2,), place), Box((1,), (1,), place), Box((3,), (1,), place)]
    with pytest.raises(Damaged, match="overlap|missing"):
        assemble(TensorSpec(I32, (4,)), hidden, "file: k")


@pytest.mark.parametrize(("offset", "size"), [(3, 2), (0, 5), (-1, 2)])
def test_a_box_outside_of_the_tensor_is_named(offset, size, tmp_path):
    with pytest.raises(Damaged, match=r"outside of the tensor, whose shape is \[4\]"):
        assemble(TensorSpec(I32, (4,)), [Box((offset,), (size,), Location(tmp_path, 0))], "file: k")


def test_more_pieces_than_can_be_listed_are_refused(tmp_path, monkeypatch):
    """Strides of 0: two bytes of a file, claimed as 2**41 rows."""
    monkeypatch.setattr(chunks, "MOST_SPANS", 1000)
    rows = 1 << 40
    boxes = [Box((i * rows, 0), (rows, 2), Location(tmp_path, 0, (0, 1))) for i in range(2)]
    with pytest.raises(InputError, match="more than 1000 pieces"):
        assemble(TensorSpec(dtype("uint8"), (2 * rows, 2)), boxes, "file: k")


def test_ten_thousand_chunks_are_put_together_in_no_time(tmp_path):
    boxes = [Box((i, 0), (1, 3), Location(tmp_path / str(i % 7), i)) for i in range(10_000)]
    place = assemble(TensorSpec(I32, (10_000, 3)), boxes, "k")
    assert isinstance(place, Scattered)
    assert len(place.spans) == 10_000


def test_spans_are_made_while_they_are_gone_through(tmp_path):
    """Columns over two ranks: four thousand rows are one description."""
    rows = 1 << 12
    boxes = [Box((0, 2 * r), (rows, 2), Location(tmp_path / str(r), 0)) for r in range(2)]
    place = assemble(TensorSpec(I32, (rows, 4)), boxes, "k")
    assert isinstance(place, Scattered)
    assert list(itertools.islice(place.spans, 4)) == [
        Span(tmp_path / "0", 0, 8),
        Span(tmp_path / "1", 0, 8),
        Span(tmp_path / "0", 8, 8),
        Span(tmp_path / "1", 8, 8),
    ]
    assert (len(place.spans), place.spans[0], place.file) == (
        2 * rows,
        Span(tmp_path / "0", 0, 8),
        tmp_path / "0",
    )
    assert place.spans[2:4] == list(itertools.islice(place.spans, 2, 4))


def test_the_same_boxes_are_the_same_place(tmp_path):
    """Ties of sharded tensors are seen by it."""

    def place(offset: int) -> Location | Scattered:
        boxes = [Box((i, 0), (1, 2), Location(tmp_path / str(i), offset)) for i in range(2)]
        return assemble(TensorSpec(I32, (2, 2)), boxes, "k")

    assert place(0) == place(0)
    assert hash(place(0)) == hash(place(0))
    assert place(0) != place(4)
