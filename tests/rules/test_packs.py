"""Every pack that comes with remap: its examples hold, there and back, and lint has nothing to say."""

from __future__ import annotations

import pytest

from remap.authoring.examples import run_examples
from remap.authoring.lint import lint
from remap.packs import available, available_layouts, load, load_layout


@pytest.mark.parametrize("name", list(available()))
def test_examples(name: str) -> None:
    assert [str(f) for f in run_examples(load(name))] == []


@pytest.mark.parametrize("name", list(available()))
def test_lint(name: str) -> None:
    assert [str(f) for f in lint(load(name))] == []


@pytest.mark.parametrize("name", list(available()))
def test_every_fact_names_its_file_and_its_version(name: str) -> None:
    assert all(e.project and e.path and (e.commit or e.version) for e in load(name).evidence)


@pytest.mark.parametrize("name", list(available_layouts()))
def test_every_fact_of_a_layout_does_so(name: str) -> None:
    assert all(e.project and e.path and (e.commit or e.version) for e in load_layout(name).evidence)
