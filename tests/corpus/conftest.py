"""How the corpus is put to remap: through its command line, in this process."""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Callable

import pytest

Cli = Callable[..., tuple[int, str]]


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch) -> Cli:
    """Arguments -> exit code, and what was printed on both streams. A traceback is the test's own."""
    from remap.cli.main import main

    def run(*arguments: object) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["remap", *map(str, arguments)])
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            try:
                main()
            except SystemExit as e:
                return int(e.code or 0), printed.getvalue()
        return 0, printed.getvalue()

    return run
