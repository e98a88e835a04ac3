"""What authors run: the list, a pack's page, the skeleton, the inverse as a pack, lint."""

from __future__ import annotations

from pathlib import Path

import pytest
from packs.language import HEAD, catalog, pack, renamed, rules

from remap.authoring.catalogue import listing
from remap.authoring.examples import plan_example, run_examples
from remap.authoring.inverse import inverse_text
from remap.authoring.lint import lint
from remap.authoring.page import page
from remap.authoring.skeleton import skeleton
from remap.authoring.values import spec_of
from remap.authoring.write import to_yaml
from remap.errors import UsageError
from remap.packs import available, load, read
from remap.packs.language.yaml_source import read_yaml
from remap.plan import make_plan
from remap.types import Catalog, Entry


def test_every_pack_is_listed() -> None:
    found = {p.name: p for p in listing()}
    assert found.keys() == available().keys()
    assert all(p.broken is None for p in found.values())
    assert found["gpt_neox/hf-to-neox"].inverse


def test_the_list_of_those_with_some_words() -> None:
    assert [p.name for p in listing(["LLaMA", "megatron"])] == ["megatron/llama-to-hf"]


def test_a_page_has_names_parameters_evidence_and_an_example() -> None:
    text = page(load("gpt_neox/hf-to-neox"))
    assert "| embedding | `gpt_neox.embed_in.weight` | `0.word_embeddings.weight` |  |" in text
    assert r"`gpt_neox.final_layer_norm.{p:weight\|bias}`" in text
    assert "| `layers` | number of transformer layers | `num_hidden_layers` in config.json;" in text
    assert "What mask-buffers, rotary-buffer dropped is not restored." in text
    assert "EleutherAI/gpt-neox" in text
    assert "2.attention.query_key_value.weight  f16[192,64]" in text


def test_the_skeleton_begins_with_the_line_for_editors_and_passes_its_own_checks() -> None:
    assert skeleton("mine/new").startswith("# yaml-language-server: $schema=schema.json\n")
    made = read(skeleton("mine/new").encode(), "new.yaml")
    assert [str(f) for f in lint(made)] == []
    assert [str(f) for f in run_examples(made)] == []


@pytest.mark.parametrize("name", ["new", "a/b/c", "../x/y", ""])
def test_a_skeleton_needs_a_name(name: str) -> None:
    with pytest.raises(UsageError, match="no name of a pack"):
        skeleton(name)


def test_the_inverse_as_a_pack_does_what_the_inverse_does() -> None:
    forward = load("gpt_neox/hf-to-neox")
    backward = read(inverse_text(forward).encode(), "inverse.yaml")
    keys = ["0.word_embeddings.weight", "13.mlp.dense_h_to_4h.bias", "15.norm.weight"]
    given = {"layers": "12"}
    assert renamed(backward, keys, params=given) == renamed(forward, keys, params=given, inverse=True)
    assert [str(f) for f in run_examples(backward)] == []


@pytest.mark.parametrize("name", available())
def test_every_inverse_can_be_written_and_is_sound(name: str) -> None:
    backward = read(inverse_text(load(name)).encode(), "inverse.yaml")
    assert [str(f) for f in (*lint(backward), *run_examples(backward))] == []


@pytest.mark.parametrize("name", available())
def test_a_pack_and_its_written_inverse_are_the_identity(name: str) -> None:
    forward = load(name)
    backward = read(inverse_text(forward).encode(), "inverse.yaml")
    for example in forward.examples:
        if example.inverse or example.fails:
            continue
        there = plan_example(forward, example)
        made = {o.key: Entry(o.key, o.expr.spec) for o in there.outputs}
        remembered = {s.pack: s.params for s in there.steps}
        back = make_plan(
            Catalog("keylist", Path("made"), (), made, config=example.config),
            [backward],
            params=example.params,
            remembered={**remembered, backward.name: there.steps[0].params},
            partial=True,
        )
        dropped = {d.key for d in there.drops}  # a tied tensor comes back although it was dropped
        found = {o.key: o.expr.spec for o in back.outputs if o.key not in dropped}
        assert found == {k: spec_of(t) for k, t in example.given.items() if k not in dropped}


def test_the_inverse_of_an_inverse_does_what_the_pack_does() -> None:
    forward = load("gpt_neox/hf-to-neox")
    backward = read(inverse_text(forward).encode(), "inverse.yaml")
    again = read(inverse_text(backward).encode(), "again.yaml")
    assert [str(f) for f in lint(again)] == []
    for example in (e for e in forward.examples if e.fails is None):
        one, other = plan_example(forward, example), plan_example(again, example)
        assert [(o.key, o.sources) for o in one.outputs] == [(o.key, o.sources) for o in other.outputs]
        assert [(d.key, d.rule) for d in one.drops] == [(d.key, d.rule) for d in other.drops]


def test_what_has_no_inverse_is_refused_with_the_rule_of_the_pack_that_is_used(tmp_path: Path) -> None:
    rule = '{id: r, from: "a.{i:int}", to: "b.{i//2}", inverse: none, because: WHY}'
    (tmp_path / "lossy.yaml").write_text(f"{HEAD}stages: [{{rules: [{rule}]}}]\n")
    (tmp_path / "user.yaml").write_text(f"{HEAD}stages: [{{use: lossy.yaml}}]\n")
    with pytest.raises(UsageError) as e:
        inverse_text(load(str(tmp_path / "user.yaml")))
    assert list(e.value.problems) == [f"{tmp_path}/lossy.yaml:5 (rule r): WHY"]


BROKEN = """
    params: {unused: {default: 1}}
    stages:
      - rules:
          - {id: half, from: "a.{i:int}", to: "b.{i//2}"}
          - {id: twin, from: "c.{i:int}", to: "b.{i//2}"}
    examples:
      - given: {a.0: "f16[1]"}
        expect: {b.1: "f16[1]"}
"""


def test_lint_finds_what_a_loadable_pack_does_wrong() -> None:
    found = [(f.code, f.line) for f in lint(pack(BROKEN))]
    assert found == [
        ("no-evidence", 1),
        ("unused-parameter", 5),
        ("no-inverse", 8),
        ("rule-without-example", 8),
        ("no-inverse", 9),
        ("rule-without-example", 9),
        ("same-target", 9),
    ]


def test_an_example_that_differs_says_how() -> None:
    made = pack("""
        stages: [{rules: [{id: r, from: "a.{i:int}", to: "b.{i+1}"}]}]
        examples: [{given: {a.0: "f16[1]", a.1: "f16[1]"}, expect: {b.0: "f16[1]", b.1: "f16[2]"}}]
    """)
    assert [f.message for f in run_examples(made)] == [
        "expected b.0, which is not there",
        "found b.2 f16[1], which is not expected",
        "b.1 is f16[1]; expected f16[2]",
    ]


def test_no_examples_is_a_finding() -> None:
    assert [f.code for f in run_examples(rules('- {keep: "**"}'))] == ["no-examples"]


@pytest.mark.parametrize(
    ("example", "code"),
    [
        ("{given: {x: 'f16[1]'}, expect: {x: 'f16[1]'}}", "example-fails"),
        ("{given: {a.0: 'f16[1]'}, fails: already-converted}", "example-succeeds"),
        ("{given: {a.0: 'f16[1]'}, fails: somehow}", "unknown-failure"),
        ("{given: {a.0: 'f16[1]'}, expect: {b.0: 'f16[2]'}}", "example-differs"),
    ],
)
def test_findings_of_examples(example: str, code: str) -> None:
    made = pack(f"""
        stages: [{{rules: [{{id: r, from: "a.{{i:int}}", to: "b.{{i}}"}}]}}]
        examples: [{example}]
    """)
    assert code in [f.code for f in run_examples(made)]


def test_lint_on_keys_finds_dead_rules() -> None:
    made = rules("""
        - {id: used, from: "a.{x}", to: "b.{x}"}
        - {id: dead, from: "c.{x}", to: "d.{x}"}
        - {id: rare, from: "e.{x}", to: "f.{x}", optional: true}
    """)
    found = [(f.code, f.level, f.line) for f in lint(made, catalog(["a.w"])) if f.code == "dead-rule"]
    assert found == [("dead-rule", "error", 8), ("dead-rule", "warning", 9)]


def test_lint_on_keys_takes_parameters() -> None:
    made = rules('- {id: r, from: "a.{x}", to: "{n}.{x}"}', "n: {from_config: size}")
    assert "plan-fails" in [f.code for f in lint(made, catalog(["a.w"]))]
    assert "plan-fails" not in [f.code for f in lint(made, catalog(["a.w"]), {"n": "3"})]


def test_what_is_dropped_and_not_said_to_be_is_a_difference() -> None:
    made = pack("""
        stages: [{rules: [{id: r, from: "a", to: "b"}, {id: m, drop: "mask", because: none}]}]
        examples:
          - {given: {a: "f16[1]", mask: "f16[1]"}, expect: {b: "f16[1]"}}
          - {given: {a: "f16[1]"}, expect: {b: "f16[1]"}, dropped: {mask: m}}
    """)
    assert [f.message for f in run_examples(made)] == [
        "mask is dropped by rule m; the example has no dropped: for it",
        "mask is not dropped; the example says dropped: {mask: m}",
    ]


def test_lint_on_keys_says_why_there_is_no_plan() -> None:
    made = rules('- {id: r, from: "a.{x}", to: "b.{x}"}')
    (found,) = [f for f in lint(made, catalog(["z.w"])) if f.code == "plan-fails"]
    assert "no rule owns" in found.message


def test_lint_finds_two_rules_for_one_template() -> None:
    made = rules("""
        - {id: one, from: "a.{x}", to: "b.{x}"}
        - {id: two, from: "a.{x}", to: "c.{x}"}
    """)
    assert ("same-source", 8) in [(f.code, f.line) for f in lint(made)]


def test_a_page_shows_its_tables() -> None:
    assert "| `mlp.gate_proj` | `feed_forward.w1` |" in page(load("llama/hf-to-meta"))


TURN = """
    stages: [{rules: [{id: r, from: "a", to: "b", do: transpose}]}]
    examples: [{given: {a: "f32[2,2] = 1 2 3 4"}, expect: {b: "f32[2,2] = VALUES"}}]
"""


def test_values_in_examples_are_compared() -> None:
    assert run_examples(pack(TURN.replace("VALUES", "1 3 2 4"))) == []
    (found,) = run_examples(pack(TURN.replace("VALUES", "1 2 3 4")))
    assert found.code == "example-values"
    assert found.message == "b has the values 1 3 2 4; expected 1 2 3 4"


@pytest.mark.parametrize("values", ["1 2", "1 2 3 x"])
def test_values_that_are_none(values: str) -> None:
    assert [f.code for f in run_examples(pack(TURN.replace("VALUES", values)))] == ["example-fails"]


def test_what_reorders_needs_values() -> None:
    made = pack("""
        stages: [{rules: [{id: r, from: "a", to: "b", do: transpose}]}]
        examples: [{given: {a: "f32[2,3]"}, expect: {b: "f32[3,2]"}}]
    """)
    assert "reorder-without-values" in [f.code for f in lint(made)]


def test_lint_sees_what_meets_in_one_direction_only() -> None:
    the = rules("""
        - {id: all, from: "a.{x}", to: "b.{x}"}
        - {id: there, from: "a.w", to: "c", only: forward}
        - {id: here, only: inverse, drop: "b.version", because: x, optional: true}
        - {id: other, only: inverse, drop: "v", because: x, optional: true}
    """)
    found = [(f.line, f.message) for f in lint(the) if f.code == "same-source"]
    assert [(line, message.partition(",")[0]) for line, message in found] == [
        (8, "rule there: it matches a.w"),
        (9, "rule here: it matches b.version"),
    ]


def test_a_pack_is_written_with_any_sign_that_keys_have() -> None:
    """What JSON escapes as two signs (those beyond the first plane) YAML does not read."""
    names = ["😀", "β", "a\x7fb", "a\u2028b", "a\tb", 'a"b\\', "true", "1", "- x", "\ufeff"]
    text = to_yaml({"keys": names, **dict.fromkeys(names, "x")})
    read_back = read_yaml(text.encode(), "x.yaml").plain()
    assert read_back == {"keys": names, **dict.fromkeys(names, "x")}


@pytest.mark.parametrize(
    ("example", "said"),
    [
        ("{given: {}, expect: {}}", "shows nothing"),
        (
            '{given: {a.w: "u8[1] = 300"}, expect: {b.w: "u8[1] = 44"}}',
            "300 is a number that uint8 does not hold",
        ),
        ('{given: {a.w: "i32[1] = 0.5"}, expect: {b.w: "i32[1] = 0"}}', "'0.5' is no number of type int32"),
        (
            '{given: {a.w: "i64[1] = 9007199254740993"}, expect: {b.w: "i64[1] = 9007199254740992"}}',
            "has the values 9007199254740993; expected 9007199254740992",
        ),
        ('{given: {a.w: "f32[3] = nan -inf 1"}, expect: {b.w: "f32[3] = nan -inf 1"}}', None),
    ],
)
def test_an_example_that_shows_nothing_or_what_can_not_be(example: str, said: str | None) -> None:
    the = pack(
        f'stages: [{{rules: [{{id: r, from: "a.{{x}}", to: "b.{{x}}"}}]}}]\nexamples:\n  - {example}\n'
    )
    found = [f.message for f in run_examples(the)]
    assert len(found) == (said is not None)
    assert said is None or said in found[0]


def test_names_of_a_table_that_only_a_table_can_hold_are_not_written_out_wrong() -> None:
    the = pack("""
        tables: {t: {"a|b": "c=d"}}
        stages: [{rules: [{id: r, from: "{x:@t}.w", to: "{x}.v"}]}]
    """)
    assert renamed(the, ["a|b.w"]) == {"a|b.w": "c=d.v"}
    with pytest.raises(UsageError, match="'c=d' can't stand among the names of a capture"):
        inverse_text(the)
