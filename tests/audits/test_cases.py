"""Public reports of loads that went wrong, each with what an audit must say of it.

``tests/data/cases.json``: the keys of the report (its ``url``), reduced, the category that each must get,
whether the audit passes, and the change that must be suggested with the number of keys that would match.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from audits.tables import by_key, catalog, plan, run, target

from remap.audit import audit
from remap.packs import read
from remap.plan import make_plan

CASES: list[dict[str, Any]] = json.loads((Path(__file__).parent.parent / "data" / "cases.json").read_text())


def report(case: dict[str, Any]) -> Any:
    policy = json.dumps(case["policy"]) + "\n" if "policy" in case else None
    rules = "\n".join(f"- {json.dumps(r)}" for r in case["rules"]) if "rules" in case else None
    return run(case["source"], case["target"], policy, rules)


@pytest.mark.parametrize("case", CASES, ids=[c["id"] for c in CASES])
def test_the_verdict_and_the_findings(case: dict[str, Any]) -> None:
    found = report(case)
    assert found.passed is case["passes"], str(found)
    assert found.exit_code == (0 if case["passes"] else 1)
    categories = by_key(found)
    for key, category in case.get("finds", {}).items():
        assert category in categories.get(key, set()), (key, categories)
    for key, text in case.get("details", {}).items():
        assert any(text in f.detail for f in found.findings if f.key == key)


SUGGESTED = [c for c in CASES if "suggests" in c]


@pytest.mark.parametrize("case", SUGGESTED, ids=[c["id"] for c in SUGGESTED])
def test_the_suggestion_is_a_pack_that_works_and_has_an_inverse(case: dict[str, Any]) -> None:
    best = report(case).suggestions[0]
    assert case["suggests"] in best.what
    assert best.after == case["after"]
    source = catalog(case["source"])
    pack = read(best.pack.encode(), "fix.yaml")
    made = make_plan(source, [pack])
    names = {o.sources[0]: o.key for o in made.outputs}
    assert sum(n in case["target"] for n in names.values()) == case["after"]
    after = audit(source, target(case["target"]), made)
    assert after.coverage.keys == case["after"]
    renamed = catalog({o.key: str(o.expr.spec) for o in made.outputs})
    back = make_plan(renamed, [pack], inverse=True)
    assert {o.sources[0]: o.key for o in back.outputs} == {new: old for old, new in names.items()}


def test_an_audit_does_not_change_what_it_looks_at() -> None:
    """e03, https://github.com/huggingface/peft/pull/3596: the second load of one dict failed."""
    source, wanted = catalog({"a": [1], "b": [2]}), target({"a": [1], "c": [2]})
    before = list(source.entries.items()), list(wanted.specs.items())
    first = audit(source, wanted)
    assert (list(source.entries.items()), list(wanted.specs.items())) == before
    assert audit(source, wanted).findings == first.findings


def test_one_pack_takes_either_spelling() -> None:
    """a05, https://github.com/pytorch/pytorch/issues/158519: a compiled module's keys, before and after."""
    rules = """
- {id: strip, from: "_orig_mod.{rest:path}", to: "{rest}", optional: true, only: forward}
- {id: plain, keep: "**", optional: true}
"""
    for spelling in ("_orig_mod.weight", "weight"):
        source = catalog({spelling: [1]})
        assert audit(source, target({"weight": [1]}), plan(source, rules)).passed
