"""Checkpoints that real torch saved on four ranks, made once a run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from filelock import FileLock

SCRIPT = Path(__file__).parent / "dcp" / "torch_ranks.py"


def run_ranks(*arguments: object) -> str:
    """Run ``torch_ranks.py`` in a process of its own; its standard output."""
    done = subprocess.run([sys.executable, SCRIPT, *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="session")
def ranks(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    """A folder with one model in every layout of ``torch_ranks.write``; workers share it, tests only read."""
    base = tmp_path_factory.getbasetemp()
    root = (base.parent if hasattr(request.config, "workerinput") else base) / "ranks"
    with FileLock(f"{root}.lock"):
        if not root.exists():
            unfinished = root.with_name("ranks-unfinished")
            unfinished.mkdir()
            run_ranks("write", unfinished)
            unfinished.rename(root)
    return root
