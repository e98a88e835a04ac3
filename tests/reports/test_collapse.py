"""Repeated layers in one line."""

from __future__ import annotations

import pytest

from remap.reports.collapse import Line, collapse


def test_layers_become_a_range():
    rows = [(f"layers.{i}.weight", f"{i + 2}.weight") for i in range(12)]
    assert collapse(rows) == [Line(("layers.{0..11}.weight", "{2..13}.weight"), 12)]


def test_what_differs_by_more_than_numbers_stays_apart():
    assert [line.count for line in collapse([("a.0.x",), ("a.0.y",), ("a.1.x",)])] == [2, 1]


def test_two_numbers_make_two_ranges():
    rows = [(f"layers.{i}.experts.{j}.w",) for i in range(3) for j in range(8)]
    assert collapse(rows) == [Line(("layers.{0..2}.experts.{0..7}.w",), 24)]


@pytest.mark.parametrize(
    ("numbers", "shown"),
    [
        ([3], "3"),
        ([0, 2, 3], "{0,2,3}"),
        ([*range(0, 20, 2)], "{0..18: 10 of them}"),
    ],
)
def test_gaps_are_shown(numbers, shown):
    assert collapse([(f"l.{n}",) for n in numbers])[0].cells == (f"l.{shown}",)


def test_a_number_inside_a_word_is_part_of_the_word():
    assert len(collapse([("conv1.w",), ("conv2.w",), ("f16[2]",)])) == 3


@pytest.mark.parametrize("odd", ["a#b.{x}", "nul\0nul", "a\nb"])
def test_odd_keys_are_left_alone(odd):
    assert collapse([(f"{odd}.0",), (f"{odd}.1",)]) == [Line((f"{odd}.{{0..1}}",), 2)]


def test_a_number_with_leading_zeros_is_text() -> None:
    assert [line.cells for line in collapse([("until 2020-01-05",)])] == [("until 2020-01-05",)]


def test_a_number_too_long_to_count_is_text() -> None:
    key = f"layers.{'1' * 5000}.weight"
    assert [line.cells for line in collapse([(key,)])] == [(key,)]


def test_other_shapes_are_other_lines():
    rows = [("a.0", "f16[8,16]"), ("a.1", "f16[16,8]"), ("a.2", "f16[8,16]")]
    assert collapse(rows) == [Line(("a.{0,2}", "f16[8,16]"), 2), Line(("a.1", "f16[16,8]"), 1)]


def test_digits_in_words_and_leading_zeros_are_text_among_rows_that_differ_in_digits_only():
    """``w1`` of 12 layers and ``w2`` of 12 layers are two lines; ``00`` is no number."""
    rows = [(f"l.{i}.w{n}", "f16[8]") for i in range(12) for n in (1, 2)]
    assert collapse([*rows, ("l.01.w1", "f16[8]"), ("l.10.w1", "f16[9]")]) == [
        Line(("l.{0..11}.w1", "f16[8]"), 12),
        Line(("l.{0..11}.w2", "f16[8]"), 12),
        Line(("l.01.w1", "f16[8]"), 1),
        Line(("l.10.w1", "f16[9]"), 1),
    ]


def test_a_line_knows_its_first_row():
    rows = [("a.0",), ("b.0",), ("a.1",), ("b.12",)]
    assert [(line.cells[0], line.first) for line in collapse(rows)] == [("a.{0..1}", 0), ("b.{0,12}", 1)]
