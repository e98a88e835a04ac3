"""The example in each category's docstring does what it says."""

from __future__ import annotations

import json

import pytest
from audits.tables import by_key, catalog, plan, target

from remap.audit import findings
from remap.audits import registry
from remap.audits.category import Category
from remap.audits.comparison import Values, compare
from remap.audits.judge import judge
from remap.audits.policy import STRICT
from remap.audits.policy_file import read_policy
from remap.packs.language.yaml_source import read_yaml

KNOWN = {
    "source",
    "target",
    "finds",
    "policy",
    "rules",
    "differ",
    "source_ties",
    "target_ties",
    "target_optional",
    "target_untyped",
}


@pytest.mark.parametrize("category", registry.categories(), ids=lambda c: c.code)
def test_the_example_finds_what_it_says(category: Category) -> None:
    example = read_yaml(category.about.example.encode(), category.name).plain()
    assert isinstance(example, dict)
    assert example.keys() <= KNOWN
    source = catalog(example["source"], example.get("source_ties"))
    made = plan(source, f"- {json.dumps(example['rules'])}") if "rules" in example else None
    policy = STRICT
    if "policy" in example:
        policy = read_policy(json.dumps(example["policy"]).encode(), "policy.yaml")
    differ = example.get("differ")
    about = {n.removeprefix("target_"): v for n, v in example.items() if n.startswith("target_")}
    table = compare(source, target(example["target"], **about), made)
    if differ:
        table.values = Values(frozenset(), differ)
    found = by_key(judge(table, list(findings(table, policy)), policy))
    assert category.name in example["finds"].values()
    for key, name in example["finds"].items():
        assert name in found.get(key, set()), (key, found)


def test_codes_and_names_are_unique() -> None:
    categories = registry.categories()
    assert len({c.code for c in categories}) == len({c.name for c in categories}) == len(categories)


@pytest.mark.parametrize("category", registry.categories(), ids=lambda c: c.code)
def test_the_docstring_says_what_why_and_what_to_do(category: Category) -> None:
    about = category.about
    assert len(about.what) > 20
    assert len(about.why) > 20
    assert len(about.remedy) > 10
