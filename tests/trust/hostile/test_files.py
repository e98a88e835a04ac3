"""Each hostile input is refused with one message, in time and in memory, and nothing in it runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from trust.hostile.cases import CASES, Case
from trust.hostile.measured import check, remap


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_verdict(tmp_path: Path, case: Case) -> None:
    case.make(tmp_path)
    check(remap(*case.arguments, cwd=tmp_path), case.code)
    assert not (tmp_path / "CANARY").exists()
    if case.arguments[0] == "convert":
        assert not (tmp_path / "out").exists()
