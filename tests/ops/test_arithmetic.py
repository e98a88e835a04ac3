"""Arithmetic of templates and sizes: what is read, what is worked out, what comes back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remap.errors import PackError
from remap.ops.arithmetic import evaluate, names, parse, solver, substitute


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("i+2", 7),
        ("2*i", 10),
        ("i//2", 2),
        ("i%2", 1),
        ("7*layers - 1", 20),
        ("2*(i+1)", 12),
        ("10-3-2", 5),
        ("layers+3", 6),
    ],
)
def test_values(text: str, value: int) -> None:
    assert evaluate(parse(text), {"i": 5, "layers": 3}) == value


@pytest.mark.parametrize(
    "text", ["", "i+", "(i", "i)", "i ** 2", "i/2", "__import__('os')", "i if i else 2", "3 4", "-1", "i.a.b"]
)
def test_what_is_no_expression_is_refused(text: str) -> None:
    with pytest.raises(PackError):
        parse(text)


def test_a_deep_expression_is_refused_by_its_length() -> None:
    with pytest.raises(PackError, match="characters"):
        parse("(" * 5000 + "1" + ")" * 5000)


def test_division_by_nothing_is_an_error() -> None:
    with pytest.raises(PackError, match="division by 0"):
        evaluate(parse("i//k"), {"i": 1, "k": 0})


def test_names_and_substitution() -> None:
    tree = parse("i + 2*layers")
    assert names(tree) == {"i", "layers"}
    assert evaluate(substitute(tree, {"layers": 4}), {"i": 1}) == 9


@given(a=st.integers(1, 50), b=st.integers(0, 50), i=st.integers(0, 10**6))
def test_a_linear_index_comes_back(a: int, b: int, i: int) -> None:
    tree = parse(f"{a}*i+{b}")
    solve = solver([tree], "i")
    assert solve is not None
    assert solve([evaluate(tree, {"i": i})]) == i


@given(a=st.integers(2, 50), b=st.integers(0, 50), value=st.integers(0, 10**4))
def test_a_value_that_the_index_can_not_have_has_no_solution(a: int, b: int, value: int) -> None:
    solve = solver([parse(f"{a}*i+{b}")], "i")
    assert solve is not None
    possible = value >= b and (value - b) % a == 0
    assert (solve([value]) is not None) == possible


@given(k=st.integers(1, 64), i=st.integers(0, 10**6))
def test_quotient_and_rest_come_back_together(k: int, i: int) -> None:
    trees = [parse(f"i//{k}"), parse(f"i%{k}")]
    solve = solver(trees, "i")
    assert solve is not None
    assert solve([i // k, i % k]) == i
    assert solve([i // k, k]) is None  # no rest is k


@pytest.mark.parametrize("texts", [["i//2"], ["i%2"], ["0*i"], ["i*i"], ["i//2", "i%3"]])
def test_what_can_not_be_solved(texts: list[str]) -> None:
    assert solver([parse(t) for t in texts], "i") is None
