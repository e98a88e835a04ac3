"""Running the command line in this process."""

from __future__ import annotations

import sys
from dataclasses import dataclass

import pytest

from remap.cli.main import main


@dataclass(frozen=True)
class Ran:
    """Exit code and what was printed."""

    code: int
    out: str
    err: str


@pytest.fixture
def remap(capsys, monkeypatch):
    """``remap("inspect", path)`` -> exit code, stdout, stderr."""

    def run(*arguments: object) -> Ran:
        monkeypatch.setattr(sys, "argv", ["remap", *map(str, arguments)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as exit_:
            main()
        out, err = capsys.readouterr()
        return Ran(exit_.value.code, out, err)

    return run
