"""The maps from old names to new that transformers computes: the family's pack gives each of them, and back.

Without ``--data``, the sample in ``tests/data``. ``make corpus`` prints ``keymaps_table``, too.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from corpus.keymaps_table import Map, maps

SAMPLE = Path(__file__).parent.parent / "data"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    found = maps(metafunc.config.getoption("--data") or SAMPLE)
    assert found
    metafunc.parametrize("one", found, ids=lambda m: m.name)


def test_the_pack_gives_the_map(one: Map) -> None:
    judged = one.judged()
    assert judged is None or judged.problems == ()  # None: no name changes, and there is nothing to do
