"""Packs that attack their reader are refused with exit code 2; odd ones work."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from trust.hostile import packs
from trust.hostile.measured import Outcome, check, remap


def apply(folder: Path, text: str | bytes, keys: tuple[str, ...]) -> Outcome:
    """Plan with the pack."""
    (folder / "pack.yaml").write_bytes(text.encode() if isinstance(text, str) else text)
    (folder / "keys.json").write_text(json.dumps({k: [[4], "float16"] for k in keys}))
    return remap("plan", "keys.json", "-r", "./pack.yaml", cwd=folder)


@pytest.mark.parametrize("name", packs.REFUSED)
def test_a_hostile_pack_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "zero.yaml").symlink_to("/dev/zero")
    check(apply(tmp_path, *packs.REFUSED[name]), 2)
    assert not (tmp_path / "CANARY").exists()


@pytest.mark.parametrize("name", packs.OPENED)
def test_an_odd_pack_works(tmp_path: Path, name: str) -> None:
    outcome = apply(tmp_path, *packs.OPENED[name])
    assert outcome.code == 0, outcome
