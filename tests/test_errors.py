"""An error is one paragraph, whatever a stranger put into it."""

from __future__ import annotations

import pytest

from remap import errors
from remap.errors import Damaged, RemapError


def test_it_says_where_what_each_problem_and_the_remedy():
    error = Damaged("2 shards are missing", where="model", problems=["a", "b"], remedy="fetch them")
    assert str(error) == "model: 2 shards are missing\n  a\n  b\nto mend it: fetch them"


def test_many_problems_are_counted():
    text = str(RemapError("x", problems=map(str, range(25))))
    assert text.splitlines()[-1] == "  ... and 5 more"


def test_control_characters_cannot_reach_the_terminal():
    assert str(RemapError("the key \x1b[2J\r\x9b", where="a\tb")) == r"a\tb: the key \x1b[2J\r\x9b"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        ("UsageError", 2),
        ("PackError", 2),
        ("PlanError", 2),
        ("InputError", 3),
        ("Hostile", 3),
        ("VerifyError", 4),
    ],
)
def test_each_has_the_exit_code_of_its_branch(error, code):
    assert getattr(errors, error).exit_code == code
