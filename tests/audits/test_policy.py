"""What a policy lets pass, and what it must never."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest
from audits.tables import catalog, run, target

from remap.audit import audit, findings
from remap.audits.baseline import Baseline, dump, read
from remap.audits.categories.custom import with_packs
from remap.audits.comparison import compare
from remap.audits.judge import judge
from remap.audits.policy import STRICT, Count, Pattern
from remap.audits.policy_file import load_policy, read_policy, shipped
from remap.audits.report import Report
from remap.errors import PackError, UsageError
from remap.packs import read as read_text

W = {"w": [2]}


def policy(text: str) -> str:
    return f"policy: 1\nname: ours\n{text}\n"


def failing(text: str, source: dict[str, object], wanted: dict[str, object]) -> set[str]:
    return {j.finding.category for j in run(source, wanted, policy(text)).at("fail")}


def test_levels_decide() -> None:
    wanted = {**W, "b": [1]}
    assert failing("", W, wanted) == {"missing-parameter"}
    for level, passes in (("allow", True), ("warn", True), ("fail", False)):
        report = run(W, wanted, policy(f"levels: {{missing-parameter: {level}}}"))
        assert report.passed is passes
        assert len(report.at(level)) == 1 + (level == "allow")  # with the matched one


def test_a_short_name_stands_for_both_sides() -> None:
    found = load_policy(read_policy(policy("levels: {adapter: allow}").encode(), "p.yaml")).levels
    assert found == {"missing-adapter": "allow", "unexpected-adapter": "allow"}


@pytest.mark.parametrize(
    ("expect", "passes"),
    [("2", True), ("1..", True), ("1..2", True), ("1", False), ("3..", False), ("0..1", False)],
)
def test_expected_counts(expect: str, passes: bool) -> None:
    wanted = {**W, "adapter.0.weight": [1], "adapter.2.weight": [1]}
    report = run(W, wanted, policy(f"levels: {{adapter: allow}}\nexpect: {{missing-adapter: {expect}}}"))
    assert report.passed is passes
    assert bool(report.of("expectation")) is not passes


def test_a_category_without_findings_is_counted_too() -> None:
    assert failing("expect: {missing-adapter: 96}", W, W) == {"expectation"}


@pytest.mark.parametrize(
    ("coverage", "passes"),
    [("{keys: 0.5}", True), ("{keys: 0.51}", False), ("{elements: 0.25}", True), ("{elements: 0.26}", False)],
)
def test_coverage_by_keys_and_by_elements(coverage: str, passes: bool) -> None:
    text = policy(f"levels: {{missing-parameter: allow}}\ncoverage: {coverage}")
    assert run({"a": [1]}, {"a": [1], "b": [3]}, text).passed is passes


def test_a_share_that_is_a_little_too_small_is_told_from_what_is_asked() -> None:
    report = run({"a": [1]}, {"a": [1], "b": [1]}, policy("coverage: {keys: 0.500001}"))
    (found,) = report.of("coverage")
    assert found.detail == "50 % of the keys are loaded; 50.0001 % must be"


@pytest.mark.parametrize("category", ["coverage", "expectation", "zero-overlap", "expired-waiver"])
def test_what_no_waiver_covers_has_none(category: str) -> None:
    text = policy(f"waivers:\n  - {{pattern: '**', reason: so, category: {category}}}")
    with pytest.raises(UsageError, match=f"{category} can't be waived"):
        read_policy(text.encode(), "p.yaml")


def test_a_part_of_a_tower_that_a_policy_names_is_no_tower_that_is_absent() -> None:
    text = "levels: {missing-vision: allow}\ncategories: {vision: 'eye.**'}"
    assert failing(text, W, {**W, "eye.a": [1], "eye.b": [1]}) == set()
    assert failing(text, {**W, "eye.a": [1]}, {**W, "eye.a": [1], "eye.b": [1]}) == {"missing-parameter"}


@pytest.mark.parametrize(
    "text",
    [
        "levels: {missing-parameter: allow, unexpected-parameter: allow}",
        "waivers:\n  - {pattern: '**', reason: all is well}",
        "waivers:\n  - {pattern: '**', reason: all is well, category: missing-parameter}",
    ],
)
def test_nothing_matched_always_fails(text: str) -> None:
    assert "zero-overlap" in failing(text, {"a": [1]}, {"b": [2]})


def test_nothing_that_fits_is_nothing_matched() -> None:
    assert "zero-overlap" in failing("levels: {shape-mismatch: allow}", {"a": [1]}, {"a": [2]})


def test_a_shape_mismatch_is_not_waived_with_what_is_missing() -> None:
    """i19, https://github.com/huggingface/transformers/pull/28122."""
    waiver = "waivers:\n  - {pattern: 'head.**', reason: trained anew}"
    source, wanted = {**W, "head.weight": [2, 4]}, {**W, "head.weight": [3, 4]}
    assert "shape-mismatch" in failing(waiver, source, wanted)
    named = "waivers:\n  - {pattern: 'head.**', reason: trained anew, category: shape-mismatch}"
    assert failing(named, source, wanted) == set()


def test_a_waiver_covers_missing_and_unexpected_keys_of_its_pattern_only() -> None:
    waiver = "waivers:\n  - {pattern: 'head.*', reason: trained anew}"
    report = run(
        {**W, "head.old": [1], "neck.old": [1]}, {**W, "head.new": [5], "head.a.b": [6]}, policy(waiver)
    )
    assert {j.finding.key for j in report.at("fail")} == {"neck.old", "head.a.b"}
    waived = {j.finding.key for j in report.at("allow") if j.because == "waived: trained anew"}
    assert waived == {"head.old", "head.new"}


def test_patterns_match_whole_keys() -> None:
    """i03, https://github.com/huggingface/transformers/pull/11213: attn.bias silenced attn.c_attn.bias,
    too."""
    assert Pattern("**.attn.bias").matches("transformer.h.0.attn.bias")
    assert not Pattern("**.attn.bias").matches("transformer.h.0.attn.c_attn.bias")
    assert not Pattern("attn.bias").matches("h.attn.bias")
    assert not Pattern("h.*.bias").matches("h.0.attn.bias")
    assert not Pattern("h.0.bias").matches("h.00bias")


def test_a_waiver_that_matches_nothing_is_reported_with_its_line() -> None:
    report = run(W, W, policy("waivers:\n  - {pattern: 'head.**', reason: trained anew}"))
    (found,) = report.at("warn")
    assert found.finding.category == "unused-waiver"
    assert found.finding.detail == "policy.yaml:4: head.** matches no finding"


@pytest.mark.parametrize(("today", "passes"), [(date(2026, 6, 30), True), (date(2026, 7, 1), False)])
def test_a_waiver_holds_until_its_day_is_over(today: date, passes: bool) -> None:
    text = policy("waivers:\n  - {pattern: b, reason: soon, until: 2026-06-30}")
    ours = read_policy(text.encode(), "p.yaml")
    table = compare(catalog(W), target({**W, "b": [1]}), None)
    report = judge(table, list(findings(table, ours)), ours, today=today)
    assert report.passed is passes
    assert bool(report.of("expired-waiver")) is not passes


def test_a_waiver_may_count_what_it_matches() -> None:
    wanted = {**W, "a.x": [3], "a.y": [4]}
    text = "waivers:\n  - {pattern: 'a.*', reason: new, expect: %d}"
    assert run(W, wanted, policy(text % 2)).passed
    assert failing(text % 1, W, wanted) == {"expectation"}


def test_categories_of_the_policy_come_first_and_take_both_sides() -> None:
    text = policy("categories: {tail: ['tail.**', '**.end']}\nlevels: {missing-tail: allow}")
    report = run({**W, "tail.old": [1]}, {**W, "tail.new": [3], "x.end": [4], "x.other": [5]}, text)
    assert {f.key for f in report.of("missing-tail")} == {"tail.new", "x.end"}
    assert {j.finding.key for j in report.at("fail")} == {"tail.old", "x.other"}
    assert {f.code for f in report.of("missing-tail")} == {"RM190"}


def test_a_category_of_the_policy_may_widen_a_known_one() -> None:
    text = policy("categories: {adapter: 'bottleneck.**'}\nlevels: {missing-adapter: allow}")
    report = run(W, {**W, "bottleneck.w": [3]}, text)
    assert report.passed
    assert [f.code for f in report.of("missing-adapter")] == ["RM104"]


def test_a_baseline_lets_what_is_known_pass_and_only_news_fail(tmp_path: Path) -> None:
    wanted = {**W, "b": [1]}
    known = tmp_path / "baseline.json"
    known.write_text(dump(run(W, wanted).judged))
    assert read(known).fingerprints == {"RM101 b"}
    again = audit(catalog(W), target(wanted), baseline=read(known))
    assert again.passed
    assert [j.because for j in again.judged if j.finding.key == "b"] == ["known: it is in the baseline"]
    news = audit(catalog(W), target({**wanted, "c": [9]}), baseline=read(known))
    assert [j.finding.key for j in news.at("fail")] == ["c"]


def test_a_known_shape_mismatch_in_another_shape_is_news() -> None:
    known = Baseline(frozenset({"RM301 w f32[3] f32[2]"}))
    for shape, passes in (([3], True), ([4], False)):
        report = audit(catalog({"a": [1], "w": shape}), target({"a": [1], "w": [2]}), baseline=known)
        assert report.passed is passes


@pytest.mark.parametrize("rank", [3, 5])
def test_a_known_pair_of_another_rank_is_news(rank: int) -> None:
    def pair(other: int) -> dict[str, object]:
        return {"q.lora_A.weight": [2, 4], "q.lora_B.weight": [4, other]}

    known = Baseline(frozenset(run(pair(3), pair(3)).findings[n].fingerprint for n in range(3)))
    report = audit(catalog(pair(rank)), target(pair(rank)), baseline=known)
    assert report.passed is (rank == 3)


def test_what_is_known_of_the_whole_is_known_by_its_detail() -> None:
    strict = read_policy(policy("levels: {optional-absent: fail}").encode(), "p.yaml")

    def report(group: str, baseline: Baseline | None = None) -> Report:
        return audit(catalog(W), target(W, optional=(group,)), policy=strict, baseline=baseline)

    known = Baseline(frozenset(f.fingerprint for f in report("norms").findings))
    assert report("norms", known).passed
    assert not report("adapters", known).passed


def test_what_is_gone_from_the_baseline_is_told() -> None:
    report = audit(catalog(W), target(W), baseline=Baseline(frozenset({"RM101 b"})))
    assert report.gone == ("RM101 b",)


def test_nothing_matched_is_in_no_baseline() -> None:
    known = Baseline(frozenset({"RM401 ", "RM101 b", "RM201 a"}))
    assert not audit(catalog({"a": [1]}), target({"b": [2]}), baseline=known).passed


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (
            "policy: 1\nlevels: {missing-adaptor: allow}",
            "p.yaml:2: no category is called 'missing-adaptor'; did you mean",
        ),
        (
            "policy: 1\nlevels: {missing-adapter: ok}",
            "p.yaml:2: 'ok' is no level; use allow, warn or fail",
        ),
        ("policy: 1\nlevels: {zero-overlap: allow}", "p.yaml:2: zero-overlap is always a failure"),
        ("policy: 1\nlevel: {}", "unknown field `level`"),
        ("policy: 2", "policy: 2; this remap reads 1"),
        (
            "policy: 1\nexpect: {missing-adapter: many}",
            "p.yaml:2: 'many' is no count; write 96, 90..96 or 1..",
        ),
        ("policy: 1\nexpect: {missing-adapter: 5..3}", "p.yaml:2: '5..3' is no count"),
        ("policy: 1\ncoverage: {keys: 95}", "p.yaml:2: 95.0 is no share; write 0.95 for 95 %"),
        (
            "policy: 1\nwaivers:\n  - {pattern: 'a'}",
            "p.yaml:3: waivers[0] Object missing required field `reason`",
        ),
        ("policy: 1\nwaivers:\n  - {pattern: 'a', reason: ''}", "p.yaml:3: a waiver needs a reason"),
        ("policy: 1\nwaivers:\n  - {pattern: 'a', reason: x, until: soon}", "p.yaml:3: 'soon' is no date"),
        ("policy: 1\nwaivers:\n  - {pattern: 'a.{', reason: x}", "p.yaml:3: 'a.{': '{' without its partner"),
        (
            "policy: 1\nwaivers:\n  - {pattern: a, reason: x, category: collision}",
            "collision can't be waived",
        ),
        ("policy: 1\nname: a\nname: b", "'name' stands here twice, first in line 2"),
        ("policy: 1\nextends: magna", "no policy is called 'magna'; did you mean 'magma'?"),
        ("policy: 1\ncategories: {Head: a}", "p.yaml:2: 'Head' is no name for a category"),
    ],
)
def test_what_is_wrong_is_told_with_its_line(text: str, what: str) -> None:
    with pytest.raises(UsageError) as error:
        read_policy(text.encode(), "p.yaml")
    assert what in str(error.value)


def test_all_problems_come_at_once() -> None:
    with pytest.raises(UsageError) as error:
        read_policy(b"policy: 1\nlevels: {a-b: allow, c-d: warn}\nexpect: {e-f: 1}", "p.yaml")
    assert len(error.value.problems) == 3


def test_a_policy_extends_another(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text("policy: 1\nextends: lora\nlevels: {missing-vision: warn}\n")
    (tmp_path / "ours.yaml").write_text("policy: 1\nextends: base.yaml\nlevels: {missing-buffer: fail}\n")
    found = load_policy(tmp_path / "ours.yaml")
    assert found.name == "ours"
    assert found.levels == {"missing-adapter": "allow", "missing-vision": "warn", "missing-buffer": "fail"}


def test_policies_that_extend_each_other(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(f"policy: 1\nextends: {path}\n")
    with pytest.raises(UsageError, match="in a circle"):
        load_policy(path)


def test_the_shipped_policies_are_read_and_strict_is_the_default() -> None:
    assert shipped().keys() == {"strict", "adapter", "finetune-head", "lora", "magma"}
    assert load_policy() is load_policy("strict") is STRICT


@pytest.mark.parametrize("name", ["magma", "lora", "finetune-head", "adapter"])
def test_no_shipped_policy_lets_a_misnamed_weight_or_a_wrong_shape_pass(name: str) -> None:
    source = {**W, "l.0.mlp.upp.weight": [3, 2], "n.weight": [5]}
    wanted = {**W, "l.0.mlp.up.weight": [3, 2], "n.weight": [6]}
    report = run(source, wanted, name)
    failed = {j.finding.key for j in report.at("fail")}
    assert {"l.0.mlp.upp.weight", "n.weight"} <= failed
    assert ("l.0.mlp.up.weight" in failed) is (name != "adapter")


def test_finetune_head_lets_heads_differ() -> None:
    source = {"bert.w": [2], "cls.predictions.bias": [9], "bert.pooler.dense.weight": [2, 2]}
    assert run(source, {"bert.w": [2], "classifier.weight": [3, 2]}, "finetune-head").passed


def test_counts() -> None:
    assert 96 in Count(96, 96)
    assert 95 not in Count(96, 96)
    assert [str(Count(96, 96)), str(Count(1, None)), str(Count(1, 3))] == ["96", "1..", "1..3"]


def test_a_pack_says_which_keys_are_adapters() -> None:
    """A family's own word for its adapters, as data of its pack, and of the packs that use it."""
    rules = b"remap: 1\npack: t/p\nversion: 1.0.0\ntitle: t\nstages: [{rules: [{id: k, keep: '**'}]}]\n"
    wanted = {**W, "bottleneck.down": [3]}
    lora = load_policy("lora")
    plain = audit(catalog(W), target(wanted), policy=with_packs(lora, [read_text(rules, "p.yaml")]))
    assert [f.key for f in plain.of("missing-parameter")] == ["bottleneck.down"]
    pack = read_text(rules + b"categories: {adapter: 'bottleneck.**'}\n", "p.yaml")
    report = audit(catalog(W), target(wanted), policy=with_packs(lora, [pack]))
    assert report.passed
    assert [f.key for f in report.of("missing-adapter")] == ["bottleneck.down"]


def test_a_part_of_an_adapter_is_not_an_absent_one_whoever_names_it() -> None:
    text = policy("categories: {adapter: 'bottleneck.**'}\nlevels: {missing-adapter: allow}")
    source = {**W, "bottleneck.down": [3]}
    report = run(source, {**source, "bottleneck.up": [4]}, text)
    assert not report.passed
    assert [f.key for f in report.of("partial-adapter")] == ["bottleneck.up"]


def test_a_packs_wrong_category_is_told_with_its_line() -> None:
    text = b"remap: 1\npack: t/p\nversion: 1.0.0\ntitle: t\nstages: [{rules: [{id: k, keep: '**'}]}]\n"
    with pytest.raises(PackError) as error:
        read_text(text + b"categories:\n  adapter: 'a.{'\n", "p.yaml")
    assert str(error.value).startswith("p.yaml:7: category adapter: 'a.{'")
