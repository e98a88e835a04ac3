"""Expressions: what ``spec`` infers, what ``lower`` copies and what ``blocks`` computes agree with torch."""

from __future__ import annotations

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from remap.dtypes import dtype
from remap.errors import Damaged, UsageError
from remap.expr import Cast, Concat, Expr, Pad, Permute, Reshape, Same, Slice, Take, blocks, ranges
from remap.types import Derived, Entry, Location, Scattered, Span, TensorSpec


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """4096 int32 numbers, 0 up, after 8 bytes of something else."""
    path = tmp_path_factory.mktemp("expr") / "numbers.bin"
    path.write_bytes(b"headroom" + torch.arange(4096, dtype=torch.int32).numpy().tobytes())
    return path


def take(file, shape, start=0, strides=None) -> tuple[Take, torch.Tensor]:
    spec = TensorSpec(dtype("int32"), tuple(shape))
    numbers = torch.arange(4096, dtype=torch.int32)[start:]
    value = numbers.as_strided(shape, strides or ranges.row_major(tuple(shape)))
    return Take(Entry("t", spec, Location(file, 8 + 4 * start, strides))), value


def copied(runs) -> bytes:
    out = b""
    for run in runs:
        out += (
            bytes(run.nbytes)
            if isinstance(run, ranges.Fill)
            else run.file.read_bytes()[run.offset :][: run.nbytes]
        )
    return out


def raw(value: torch.Tensor) -> bytes:
    return value.numpy().tobytes()  # row-major, whatever the strides


@st.composite
def programs(draw):
    """A shape and a list of steps, each drawn against the shape that the steps before it leave."""
    shape = draw(st.lists(st.integers(1, 6), min_size=1, max_size=4))
    steps = []
    now = torch.zeros(shape)
    for _ in range(draw(st.integers(0, 5))):
        kind = draw(st.sampled_from(["slice", "concat", "permute", "reshape", "pad", "cast"]))
        dim = draw(st.integers(0, now.dim() - 1))
        n = now.shape[dim]
        if kind == "slice":
            a = draw(st.integers(0, n - 1))
            arg = (dim, a, draw(st.integers(a + 1, n)))
        elif kind == "concat":
            arg = (dim,)
        elif kind == "permute":
            arg = tuple(draw(st.permutations(range(now.dim()))))
        elif kind == "reshape":
            arg = draw(st.sampled_from([(now.numel(),), (1, now.numel()), (n, now.numel() // n)]))
        elif kind == "pad":
            arg = (dim, draw(st.integers(0, 2)), draw(st.integers(0, 2)), draw(st.sampled_from([0.0, 7.0])))
        else:
            arg = (draw(st.sampled_from(["int64", "int32", "float32"])),)
        now = apply(now, kind, arg)
        if now.numel() > 2000:
            break
        steps.append((kind, arg))
    return shape, steps


def apply(value: torch.Tensor, kind: str, arg) -> torch.Tensor:
    """What torch does for one step."""
    if kind == "slice":
        return value.narrow(arg[0], arg[1], arg[2] - arg[1])
    if kind == "concat":
        return torch.cat([value, value], arg[0])
    if kind == "permute":
        return value.permute(arg)
    if kind == "reshape":
        return value.reshape(arg)
    if kind == "pad":
        dim, before, after, fill = arg
        pad = [0, 0] * (value.dim() - dim - 1) + [before, after]
        return torch.nn.functional.pad(value, pad, value=fill)
    return value.to(getattr(torch, arg[0]))


def node(expr: Expr, kind: str, arg) -> Expr:
    if kind == "slice":
        return Slice(expr, *arg)
    if kind == "concat":
        return Concat((expr, expr), *arg)
    if kind == "permute":
        return Permute(expr, arg)
    if kind == "reshape":
        return Reshape(expr, arg)
    if kind == "pad":
        return Pad(expr, *arg)
    return Cast(expr, dtype(arg[0]))


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(program=programs(), budget=st.sampled_from([1, 1 << 21, 1 << 30]), small=st.sampled_from([1, 1024]))
def test_every_way_gives_the_bytes_that_torch_gives(file, monkeypatch, program, budget, small):
    monkeypatch.setattr(ranges, "SMALLEST_RUN", small)
    monkeypatch.setattr(blocks, "NEAR", 64)
    shape, steps = program
    expr, value = take(file, shape)
    for kind, arg in steps:
        expr, value = node(expr, kind, arg), apply(value, kind, arg)
    assert expr.spec == TensorSpec(dtype(str(value.dtype)), tuple(value.shape))
    assert b"".join(bytes(b) for b in blocks.blocks(expr, budget)) == raw(value)
    runs = ranges.lower(expr)
    if runs is not None:
        assert copied(runs) == raw(value)


@pytest.mark.parametrize("strides", [(1, 8), (0, 1), (64, 2), (16, 1)])
def test_a_strided_view_reads_as_torch_reads_it(file, monkeypatch, strides):
    monkeypatch.setattr(ranges, "SMALLEST_RUN", 1)
    expr, value = take(file, (8, 8), start=3, strides=strides)
    assert copied(ranges.lower(expr)) == raw(value)
    assert torch.equal(blocks.evaluate(expr), value)


def test_a_split_on_the_first_dimension_is_one_run(file):
    expr, _ = take(file, (8, 4))
    assert ranges.lower(Slice(expr, 0, 2, 4)) == [ranges.Span(file, 8 + 2 * 4 * 4, 2 * 4 * 4)]


def test_joining_what_lay_together_is_one_run(file):
    expr, _ = take(file, (8, 4))
    joined = Concat((Slice(expr, 0, 0, 3), Slice(expr, 0, 3, 8)))
    assert ranges.lower(joined) == [ranges.Span(file, 8, 8 * 4 * 4)]


def test_a_transpose_is_computed_not_copied(file):
    expr, _ = take(file, (8, 4))
    assert ranges.lower(Permute(expr, (1, 0))) is None


def test_a_cast_to_the_same_type_is_copied(file):
    expr, _ = take(file, (8, 4))
    assert ranges.lower(Cast(expr, dtype("int32"))) == [ranges.Span(file, 8, 128)]


def test_peak_stays_near_the_budget(file):
    expr, _ = take(file, (64, 64))
    assert blocks.peak(Cast(expr, dtype("int64")), 1 << 30) >= 64 * 64 * 8
    small = blocks.peak(Cast(expr, dtype("int64")), blocks.NEAR + 8192)
    assert small <= blocks.NEAR + 8192


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda t: Slice(t, 0, 3, 9), "slice [3:9] of dimension 0, which has 8"),
        (lambda t: Slice(t, 2, 0, 1), "slice along dimension 2"),
        (lambda t: Reshape(t, (5, 5)), "(32 elements) to [5, 5]"),
        (lambda t: Permute(t, (0, 0)), "permute by [0, 0]"),
        (lambda t: Concat((t, Slice(t, 1, 0, 2)), 0), "concat along dimension 0"),
        (lambda t: Concat((t, Cast(t, dtype("f32"))), 0), "concat of int32 and float32"),
        (lambda t: Concat(()), "concat of nothing"),
        (lambda t: Pad(t, 0, -1, 0), "pad by -1"),
    ],
)
def test_a_node_that_does_not_fit_is_refused_when_it_is_built(file, build, message):
    expr, _ = take(file, (8, 4))
    with pytest.raises(UsageError, match=message.replace("[", r"\[").replace("(", r"\(").replace(")", r"\)")):
        build(expr)


def test_a_key_list_has_no_bytes():
    expr = Take(Entry("k", TensorSpec(dtype("f16"), (2,))))
    with pytest.raises(UsageError, match="no bytes to read"):
        ranges.lower(expr)


@pytest.fixture
def pieces(file, tmp_path):
    """A (8, 8) int32 tensor in three pieces: from ``file``, from another file, from ``file`` again."""
    numbers = torch.arange(4096, dtype=torch.int32)
    (tmp_path / "other.bin").write_bytes(b"xx" + numbers[1000:1030].numpy().tobytes())
    spans = (
        Span(file, 8 + 4 * 7, 4 * 21),
        Span(tmp_path / "other.bin", 2, 4 * 30),
        Span(file, 8 + 4 * 100, 4 * 13),
    )
    entry = Entry("t", TensorSpec(dtype("int32"), (8, 8)), Scattered(spans))
    return Take(entry), torch.cat([numbers[7:28], numbers[1000:1030], numbers[100:113]]).reshape(8, 8)


def test_a_tensor_in_pieces_lowers_to_them(pieces):
    expr, value = pieces
    runs = ranges.lower(expr)
    assert runs == list(expr.entry.location.spans)
    assert copied(runs) == raw(value)


def test_a_cut_of_a_tensor_in_pieces_reads_no_more_than_it(pieces):
    expr, value = pieces
    runs = ranges.lower(Slice(expr, 0, 3, 7))
    assert [r.nbytes for r in runs] == [4 * 27, 4 * 5]
    assert copied(runs) == raw(value[3:7])


@pytest.mark.parametrize("near", [1, 64, 1 << 20])
def test_a_tensor_in_pieces_computes_as_any_other(pieces, monkeypatch, near):
    monkeypatch.setattr(blocks, "NEAR", near)
    expr, value = pieces
    assert torch.equal(blocks.evaluate(expr), value)
    assert torch.equal(blocks.evaluate(Permute(expr, (1, 0))), value.T)
    assert torch.equal(blocks.evaluate(Slice(Slice(expr, 1, 2, 5), 0, 3, 8)), value[3:8, 2:5])


def test_pieces_that_lie_together_are_one_run(file):
    spans = (Span(file, 8, 16), Span(file, 24, 16))
    entry = Entry("t", TensorSpec(dtype("int32"), (8,)), Scattered(spans))
    assert ranges.lower(Take(entry)) == [Span(file, 8, 32)]


def test_a_file_that_ends_inside_a_piece_is_named(file):
    spans = (Span(file, 8, 16), Span(file, 8 + 4 * 4094, 16))
    entry = Entry("weight", TensorSpec(dtype("int32"), (8,)), Scattered(spans))
    with pytest.raises(Damaged, match=r"numbers\.bin: weight: the file ends inside"):
        blocks.evaluate(Take(entry))


def test_a_derived_tensor_lowers_and_computes_as_its_expression(file):
    left, one = take(file, (8, 4), start=10)
    right, two = take(file, (8, 4), start=100)
    joined = Concat((left, right), 1)
    derived = Take(Entry("t", joined.spec, Derived(joined)))
    value = torch.cat([one, two], 1)
    assert torch.equal(blocks.evaluate(Permute(derived, (1, 0))), value.T)
    assert ranges.lower(derived) == ranges.lower(joined)
    assert blocks.peak(derived, 1 << 30) == blocks.peak(joined, 1 << 30)
    assert derived.entry.location.file == file


def test_copies_lower_to_stretches_that_are_to_be_compared(file, pieces):
    scattered, _ = pieces
    whole = Take(Entry("u", scattered.spec, Location(file, 8)))
    runs = ranges.lower(Slice(Same((whole, scattered)), 0, 2, 7))
    assert [run.names for run in runs] == [("u", "t")] * len(runs)
    assert runs[0].spans[0] == Span(file, 8 + 4 * 16, 4 * 5)
    assert sum(run.nbytes for run in runs) == 4 * 40
    assert copied([run.spans[1] for run in runs]) == copied(ranges.lower(Slice(scattered, 0, 2, 7)))


def test_copies_that_agree_are_one_tensor(file):
    expr, value = take(file, (8, 4))
    assert torch.equal(blocks.evaluate(Same((expr, expr))), value)


def test_copies_that_differ_are_refused_with_both_places(file, tmp_path):
    expr, value = take(file, (8, 4))
    value = value.clone()
    value[7, 3] += 5
    (tmp_path / "other.bin").write_bytes(raw(value))
    other = Take(Entry("t", expr.spec, Location(tmp_path / "other.bin", 0)))
    with pytest.raises(Damaged, match=r"numbers\.bin: t: copies .* do not agree") as caught:
        blocks.evaluate(Same((expr, expr, other)))
    assert caught.value.problems == (f"{tmp_path / 'other.bin'}: t differs by up to 5",)


def test_copies_of_different_shapes_are_refused_when_built(file):
    expr, _ = take(file, (8, 4))
    with pytest.raises(UsageError, match="copies of one tensor"):
        Same((expr, Slice(expr, 0, 0, 4)))
