"""How the corpus is put to remap: through its command line, in this process."""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Callable

import pytest

Cli = Callable[..., tuple[int, str, str]]


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch) -> Cli:
    """Arguments -> exit code, stdout, stderr. What remap doesn't catch fails the test."""
    from remap.cli.main import main

    def run(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["remap", *map(str, arguments)])
        out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
        with (
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
            pytest.raises(SystemExit) as end,
        ):
            main()
        printed = (stream.buffer.getvalue().decode() for stream in (out, err))
        return int(end.value.code or 0), *printed

    return run
