"""How the corpus is put to remap: through its command line, in this process."""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

NEEDS_DATA = (
    "test_adapters.py",
    "test_adapters_followed.py",
    "test_hostile.py",
    "test_image_prefix.py",
    "test_lost_head.py",
)
"""What has nothing to run on without the corpus; the rest has a sample of it in tests/data."""

NEEDS_FOLDER = {"test_pipeline.py": "pipeline", "test_zero.py": "zero"}
"""What has nothing to run on without that folder of the corpus: runs of other DeepSpeed versions, say."""


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out what would only be skipped."""
    data = config.getoption("--data")
    folder = NEEDS_FOLDER.get(collection_path.name)
    if folder is not None:
        return True if data is None or not (data / folder).is_dir() else None
    return True if collection_path.name in NEEDS_DATA and data is None else None


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
