"""Runs ``torch_ranks.py``: real torch on several ranks, in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).with_name("torch_ranks.py")


def run_ranks(*arguments: object) -> str:
    """Run the script; its standard output."""
    done = subprocess.run([sys.executable, SCRIPT, *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
