"""The regex escape hatch: full match, stated inverse, a time limit."""

from __future__ import annotations

import time

import pytest
from packs.language import renamed, rules

from remap.errors import PackError, PlanError
from remap.packs.language.pack import Pattern
from remap.packs.language.patterns import unbounded


def test_a_pattern_renames_and_its_stated_inverse_undoes_it() -> None:
    the = rules(r"""
        - id: r
          regex: 'h(?P<i>\d+)_(?P<x>\w+)'
          to: "h.{i}.{x}"
          inverse: {from: "h.{i}.{x}", to: "h{i}_{x}"}
    """)
    assert renamed(the, ["h12_w"]) == {"h12_w": "h.12.w"}
    assert renamed(the, ["h.12.w"], inverse=True) == {"h.12.w": "h12_w"}


def test_a_pattern_matches_the_whole_key() -> None:
    the = rules(r"""
        - {id: r, regex: 'attn\.bias', to: "b", inverse: none, because: test}
        - {keep: "**"}
    """)
    assert renamed(the, ["h.attn.bias"]) == {"h.attn.bias": "h.attn.bias"}


def test_a_hostile_pattern_is_stopped_with_its_line() -> None:
    the = rules("""
        - {id: r, regex: '(?P<x>(?:a|aa)+)+b', to: "{x}", inverse: none, because: test}
        - {keep: "**"}
    """)
    began = time.process_time()  # the machine may be busy with others
    with pytest.raises(PlanError, match=r"took more than 1 s") as e:
        renamed(the, ["a" * 60])
    assert e.value.where == "test.yaml:7 (rule r)"
    assert time.process_time() - began < 2


@pytest.mark.parametrize(
    ("text", "part"),
    [
        (r"h(?P<i>[0-9]+)_(?P<x>\w+)", None),
        (r"a\.*b[.*+]+(?:c|d)*", None),
        (r"(?P<x>[^.]+)(?:\.[0-9]{1,3})+", None),
        (r"a(?P<x>.+)", ".+"),
        (r"a.{2,}", ".{2,}"),
        (r"(?:a+)+b", "a repeated group, )+"),
        (r"((?:a*)b)*", "a repeated group, )*"),
    ],
)
def test_what_has_no_bound(text: str, part: str | None) -> None:
    assert unbounded(Pattern(text, frozenset())) == part


@pytest.mark.parametrize("text", ["((((a{1000}){1000}){1000}){1000})", "(?:a{40}b{40}){2,}", "a{1001}"])
def test_counts_that_multiply_are_not_compiled(text: str) -> None:
    """Each is written out: four times a thousand takes gigabytes before any key is seen."""
    began = time.process_time()
    with pytest.raises(PackError, match="repeats its parts more than 1000 times") as e:
        rules(f"- {{id: r, regex: '{text}', to: b, inverse: none, because: test}}")
    assert e.value.where == "test.yaml:7"
    assert time.process_time() - began < 1


@pytest.mark.parametrize("text", ["[0-9]{1,3}_(?:ab){2}", "a{30}b{0}"])
def test_counts_that_keys_have(text: str) -> None:
    rules(f"- {{id: r, regex: '{text}', to: b, inverse: none, because: test}}")
