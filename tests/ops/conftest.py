"""Fixtures of the op tests."""

from __future__ import annotations

from pathlib import Path

import pytest
from ops.values import Bench


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """Where sources are made."""
    return Bench(tmp_path)
