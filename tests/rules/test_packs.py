"""Every pack that comes with remap: its examples hold, there and back, and lint has nothing to say."""

from __future__ import annotations

import pytest

from remap.authoring.examples import run_examples
from remap.authoring.lint import lint
from remap.packs import available, load


@pytest.mark.parametrize("name", list(available()))
def test_examples(name: str) -> None:
    assert [str(f) for f in run_examples(load(name))] == []


@pytest.mark.parametrize("name", list(available()))
def test_lint(name: str) -> None:
    assert [str(f) for f in lint(load(name))] == []
