"""Lint tries wrong orders of the same shape: an example that gives their values, too, shows nothing."""

from __future__ import annotations

from importlib.resources import files

import pytest
from packs.language import pack

from remap.authoring.examples import run_examples
from remap.authoring.lint import lint
from remap.packs import read

EVIDENCE = "evidence: [{project: x}]\n"


def orders(rule: str, given: str, expect: str) -> list[str]:
    """What lint says of the order of a rule and its one example."""
    the = pack(
        f"{EVIDENCE}stages: [{{rules: [{{id: r, {rule}}}]}}]\n"
        f"examples:\n  - given: {{{given}}}\n    expect: {{{expect}}}\n"
    )
    assert run_examples(the) == []
    return [f.message for f in lint(the) if f.code in ("order-not-shown", "reorder-without-values")]


HALVES = 'from: "q", to: "w", do: {rotary: {heads: 1, from: half, to: interleaved}}'
GROUPS = "from: [q, k, v], to: w, do: {fuse_qkv: {layout: groups, heads: 2, kv_heads: 2}}"
ONE_GROUP = "from: [q, k, v], to: w, do: {fuse_qkv: {layout: groups, heads: 2, kv_heads: 1}}"


@pytest.mark.parametrize(
    ("rule", "given", "expect", "said"),
    [
        (HALVES, 'q: "f32[4] = 0 1 2 3"', 'w: "f32[4] = 0 2 1 3"', "with rows turned the other way"),
        (HALVES, 'q: "f32[6] = 0 1 2 3 4 5"', 'w: "f32[6] = 0 3 1 4 2 5"', None),
        (HALVES, 'q: "f32[2] = 0 1"', 'w: "f32[2] = 0 1"', "with rows turned the other way"),
        (HALVES, 'q: "f32[6]"', 'w: "f32[6]"', "needs an example with values"),
        (
            "from: [a, b], to: c, do: concat",
            'a: "f32[1] = 0", b: "f32[1] = 0"',
            'c: "f32[2] = 0 0"',
            "with parts by turns",
        ),
        (
            "from: [a, b], to: c, do: concat",
            'a: "f32[1] = 0", b: "f32[1] = 1"',
            'c: "f32[2] = 0 1"',
            "with parts by turns",
        ),
        (
            "from: [a, b], to: c, do: concat",
            'a: "f32[2] = 0 1", b: "f32[2] = 2 3"',
            'c: "f32[4] = 0 1 2 3"',
            None,
        ),
        (
            "from: c, to: [a, b], do: deinterleave",
            'c: "f32[4] = 0 1 2 3"',
            'a: "f32[2] = 0 2", b: "f32[2] = 1 3"',
            None,
        ),
        (
            "from: [a, b], to: c, do: stack",
            'a: "f32[1]", b: "f32[1]"',
            'c: "f32[2,1]"',
            "needs an example with values",
        ),
        (
            "from: [a, b], to: c, do: stack",
            'a: "f32[1] = 7", b: "f32[1] = 7"',
            'c: "f32[2,1] = 7 7"',
            "with the parts of from: in another order",
        ),
        (
            "from: a, to: c, do: transpose",
            'a: "f32[2,2] = 1 2 2 1"',
            'c: "f32[2,2] = 1 2 2 1"',
            "without transpose",
        ),
        ("from: a, to: c, do: transpose", 'a: "f32[1,2] = 1 2"', 'c: "f32[2,1] = 1 2"', None),
        (
            GROUPS,
            'q: "f32[2] = 0 1", k: "f32[2] = 2 3", v: "f32[2] = 4 5"',
            'w: "f32[6] = 0 2 4 1 3 5"',
            None,
        ),
        (
            ONE_GROUP,
            'q: "f32[2] = 0 1", k: "f32[1] = 2", v: "f32[1] = 2"',
            'w: "f32[4] = 0 1 2 2"',
            "with the order q, v, k",
        ),
    ],
)
def test_an_example_shows_the_order_or_not(rule: str, given: str, expect: str, said: str | None) -> None:
    found = orders(rule, given, expect)
    assert len(found) == (said is not None)
    assert said is None or said in found[0]


def test_values_of_another_rule_show_nothing() -> None:
    the = pack(
        f"""{EVIDENCE}stages:
  - rules: [{{id: r, from: a, to: b, do: transpose}}, {{id: s, from: x, to: y}}]
examples:
  - given: {{a: "f32[2,2]", x: "f32[1] = 1"}}
    expect: {{b: "f32[2,2]", y: "f32[1] = 1"}}
"""
    )
    assert [f.code for f in lint(the)] == ["reorder-without-values"]


@pytest.mark.parametrize(
    ("name", "right", "wrong"),
    [
        ("opt/hf-to-metaseq", "order: [k, v, q]", "order: [v, k, q]"),
        ("opt/hf-to-metaseq", "layout: blocks", "layout: groups"),
        ("llama/hf-to-meta", "from: half, to: interleaved", "from: interleaved, to: half"),
        ("gpt_neox/llama-to-neox", "layout: blocks", "layout: groups"),
        ("transformers/mixtral-4-to-5", "{concat: {dim: 0}}", "{interleave: {dim: 0}}"),
        ("gpt2/conv1d-to-linear", "do: transpose", "do: []"),
    ],
)
def test_the_examples_of_packs_notice_a_wrong_order(name: str, right: str, wrong: str) -> None:
    text = files("remap_rules").joinpath(f"{name}.yaml").read_text()
    for n in range(text.count(right)):
        *before, after = text.split(right, n + 1)
        mutant = read((right.join(before) + wrong + after).encode(), "mutant.yaml")
        assert run_examples(mutant) != [], (n, right)
