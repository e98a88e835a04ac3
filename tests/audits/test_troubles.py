"""What a conversion would refuse is told by an audit, all of it at once, beside what else is wrong."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from audits.tables import catalog, plan, target

import remap
from remap.audit import audit
from remap.audits.policy_file import read_policy
from remap.audits.report import Report
from remap.errors import AuditFailed, PlanError, UsageError
from remap.packs import read
from remap.plan import make_plan

MOVED = '- {id: moved, from: "old.{rest:path}", to: "new.{rest}"}'


def by_rules(source: dict[str, object], wanted: dict[str, object], rules: str) -> Report:
    given = catalog(source)
    return audit(given, target(wanted), plan(given, rules))


def test_two_sources_of_one_target() -> None:
    rules = f'{MOVED}\n- {{id: average, from: "ema.{{rest:path}}", to: "new.{{rest}}"}}'
    source = {"old.a": [4], "ema.a": [4], "old.b": [4], "ema.c": [2]}
    report = by_rules(source, {"new.a": [4], "new.b": [4], "new.c": [3]}, rules)
    assert not report.passed
    (found,) = report.of("collision")
    assert found.key == "new.a"
    assert found.detail == "from old.a (test.yaml:7 (rule moved)) and ema.a (test.yaml:8 (rule average))"
    assert [f.key for f in report.of("renamed")] == ["new.a", "new.b"], "the first of the two has the name"
    assert [f.key for f in report.of("shape-mismatch")] == ["new.c"], "what else is wrong is told, too"
    assert report.coverage.keys == 2


def test_keys_that_no_rule_owns_keep_their_names() -> None:
    report = by_rules({"old.a": [4], "b": [4], "stray": [4]}, {"new.a": [4], "b": [4]}, MOVED)
    assert [(f.key, f.detail) for f in report.of("no-rule")] == [
        ("b", "no rule of test/pack owns it"),
        ("stray", "no rule of test/pack owns it"),
    ]
    assert [f.key for f in report.of("matched")] == ["b"]
    assert [f.key for f in report.of("unexpected-parameter")] == ["stray"]
    assert not report.passed


def test_a_rule_that_does_not_fire_as_it_should() -> None:
    rules = f'{MOVED}\n- {{id: head, from: "head.w", to: "out.w"}}'
    report = by_rules({"old.a": [4]}, {"new.a": [4], "out.w": [4]}, rules)
    (found,) = report.of("unfit-rule")
    assert found.detail == "test.yaml:8 (rule head) matched no key: head.w"
    assert [f.key for f in report.of("missing-parameter")] == ["out.w"]


def test_an_expert_that_is_missing() -> None:
    rules = '- {id: e, from: "l.{i:int}.e.{n:int}.w", to: "l.{i}.e.w", do: {stack: {over: n}}}'
    source = {f"l.{i}.e.{n}.w": [4] for i in range(3) for n in range(12) if (i, n) != (1, 5)}
    report = by_rules(source, {f"l.{i}.e.w": [12, 4] for i in range(3)}, rules)
    (found,) = report.of("unfit-rule")
    assert "n counts to 11, and 5 is missing" in found.detail
    assert [f.key for f in report.of("renamed")] == ["l.0.e.w", "l.2.e.w"]
    assert [f.key for f in report.of("missing-parameter")] == ["l.1.e.w"]


def test_layers_with_a_gap(pythia: Callable[[str], Path], tmp_path: Path) -> None:
    report = remap.audit(
        pythia_keys(pythia, tmp_path, without="layers.1."), "magma/neox", "magma/from-hf", policy="magma"
    )
    details = [f.detail for f in report.of("unfit-rule")]
    assert any("without 1" in d for d in details)
    missing = {f.key.split(".")[0] for f in report.findings if f.category.startswith("missing-")}
    assert "3" in missing, "the layer is named, as the target has it"
    assert report.exit_code == 1


def test_no_policy_lets_it_pass() -> None:
    for name in ("no-rule", "unfit-rule", "collision"):
        with pytest.raises(UsageError, match=f"{name} is always a failure"):
            read_policy(json.dumps({"policy": 1, "levels": {name: "allow"}}).encode(), "p.yaml")


def test_a_conversion_still_refuses() -> None:
    source = catalog({"old.a": [4], "stray": [4]})
    text = f"remap: 1\npack: t/p\nversion: 1.0.0\ntitle: t\nstages:\n  - rules:\n      {MOVED}\n"
    with pytest.raises(PlanError, match="keys that no rule owns"):
        make_plan(source, [read(text.encode(), "t.yaml")])


def test_load_into_says_it_with_its_report(pythia: Callable[[str], Path], tmp_path: Path) -> None:
    model = torch.nn.Linear(2, 2)
    path = tmp_path / "w.pt"
    torch.save({"old.weight": torch.ones(2, 2), "ema.weight": torch.ones(2, 2)}, path)
    pack = tmp_path / "p.yaml"
    pack.write_text(
        "remap: 1\npack: t/p\nversion: 1.0.0\ntitle: t\nstages:\n  - rules:\n"
        '      - {id: a, from: "old.{p}", to: "{p}"}\n      - {id: b, from: "ema.{p}", to: "{p}"}\n'
    )
    before = model.weight.clone()
    with pytest.raises(AuditFailed) as error:
        remap.load_into(model, path, [pack])
    assert "RM402 collision: weight" in str(error.value)
    assert torch.equal(model.weight, before)


def pythia_keys(pythia: Callable[[str], Path], folder: Path, without: str) -> Path:
    entries = remap.open(pythia("fp32")).catalog.entries
    path = folder / "keys.json"
    kept = {k: [list(e.spec.shape), e.spec.dtype.name] for k, e in entries.items() if without not in k}
    path.write_text(json.dumps(kept))
    return path


def test_a_pack_that_owns_no_key_is_the_wrong_one() -> None:
    with pytest.raises(PlanError, match="keys that no rule owns"):
        by_rules({"a": [4], "b": [4]}, {"a": [4], "b": [4]}, MOVED)
