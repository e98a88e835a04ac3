"""A few of the boundaries of every conversion that is killed; ``make kill`` strikes at all of them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

KILL = Path(__file__).with_name("kill.py")


def test_killed_anywhere_an_output_is_old_or_new_and_resume_finishes(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, str(KILL), "--every", "31"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "KILL_DIR": str(tmp_path)},
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout.count("\n|") > 14
