"""Fixtures for the whole suite: real checkpoints, and where the corpus lies."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from servers import Store, Web

    Shared = Callable[[str, Callable[[Path], object]], Path]

os.environ.setdefault("DS_ACCELERATOR", "cpu")
os.environ.setdefault("HF_HUB_OFFLINE", "1")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--data", type=Path, help="folder of the corpus, for tests/corpus")


@pytest.fixture(scope="session")
def data(request: pytest.FixtureRequest) -> Path:
    """The corpus. Skips where none was given."""
    folder = request.config.getoption("--data")
    if folder is None:
        pytest.skip("needs --data (make corpus)")
    return folder.resolve(strict=True)


@pytest.fixture(scope="session")
def pythia(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Name of a variant (``checkpoints.VARIANTS``) -> its folder, made at the first call.

    Tests only read them: every test of the session shares one folder.
    """
    root = tmp_path_factory.mktemp("pythia")

    def folder(variant: str) -> Path:
        from checkpoints import VARIANTS  # transformers takes seconds to import

        path = root / variant
        if not path.exists():
            path.mkdir()
            VARIANTS[variant](path)
        return path

    return folder


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Shared:
    """A folder by its name, made once for all workers: what fills it is called with it."""
    from filelock import FileLock

    base = tmp_path_factory.getbasetemp()
    base = base.parent if hasattr(request.config, "workerinput") else base

    def made(name: str, fill: Callable[[Path], object]) -> Path:
        root = base / name
        with FileLock(f"{root}.lock"):
            if not root.exists():
                unfinished = root.with_name(f"{name}-unfinished")
                unfinished.mkdir()
                fill(unfinished)
                unfinished.rename(root)
        return root

    return made


@pytest.fixture(scope="session")
def neox_runs(shared: Shared) -> Path:
    """A folder with what real DeepSpeed saved on two ranks or stages, a run a folder: ``judges.neox_runs``.

    Workers share it, and tests only read it.
    """
    from judges.neox_runs import save_all

    return shared("neox-runs", save_all)


@pytest.fixture(scope="session")
def ranks(shared: Shared) -> Path:
    """A folder with what real torch saved on four ranks: ``formats/dcp/torch_ranks.py``.

    Workers share it, and tests only read it.
    """
    from formats.dcp.launch import run_ranks

    return shared("ranks", lambda folder: run_ranks("write", folder))


@pytest.fixture(scope="session")
def zero_runs(shared: Shared) -> Path:
    """A folder with what real DeepSpeed saved under ZeRO on two processes (``judges.zero_training.CASES``):
    ``<case>`` is a checkpoint, ``<case>.truth.N`` what rank N's live engine held, ``losses.json`` its losses
    from there on.

    Workers share it, and tests only read it.
    """
    from judges.zero_training import write_cases

    return shared("zero", write_cases)


@pytest.fixture(scope="session")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Web]:
    """A web server of the files of a folder, which writes down what it is asked."""
    from servers import Web

    with Web(tmp_path_factory.mktemp("web")) as server:
        yield server


@pytest.fixture(scope="session")
def store() -> Iterator[Store]:
    """moto's S3; tests take ``s3``."""
    from servers import Store

    with Store() as server:
        yield server


@pytest.fixture
def s3(store: Store, monkeypatch: pytest.MonkeyPatch) -> Store:
    """moto's S3, which the environment leads to; what it was asked before is forgotten."""
    for name, value in store.environment.items():
        monkeypatch.setenv(name, value)
    store.asked.clear()
    store.refused = None
    return store
