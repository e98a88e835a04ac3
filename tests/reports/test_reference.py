"""docs/audit.md is what the docstrings say."""

from __future__ import annotations

import re
from pathlib import Path

from remap.audits import registry
from remap.audits.policy_file import read_policy
from remap.reports.reference import render

PAGE = Path(__file__).parents[2] / "docs" / "audit.md"


def test_the_page_is_current() -> None:
    assert PAGE.read_text() == render(), "python -m remap.reports.reference > docs/audit.md"


def test_every_code_has_a_heading_and_every_link_leads_to_one() -> None:
    text = PAGE.read_text()
    headings = {
        re.sub(r"[^a-z0-9 -]", "", h.lower()).replace(" ", "-")
        for h in re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    }
    assert set(re.findall(r"\]\(#([^)]*)\)", text)) <= headings
    for category in registry.categories():
        assert f"### {category.code} {category.name}\n" in text


def test_the_pages_policy_is_a_policy() -> None:
    text = PAGE.read_text().partition("```yaml\n")[2].partition("```")[0]
    assert read_policy(text.encode(), "docs/audit.md").name == "ours"
