"""Hostile, damaged and odd files: each is refused or opened as the corpus says, and none runs code.

A refusal is exit code 3: a message, not a traceback. It comes from ``inspect``, or, where only the
weights are wrong, from ``convert``, which leaves nothing behind.
"""

from __future__ import annotations

import json
import signal
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

Cli = Callable[..., tuple[int, str, str]]

AWAITED = {"rules", "output", "dcp", "fsdp"}
"""Formats of cases in other dialects (rules), of writers, and of readers to come."""

DEPARTURES = {
    "s32_valid_empty": "a checkpoint without tensors is never a success",
}
"""Cases that remap judges otherwise than the corpus, and why."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    folder = metafunc.config.getoption("--data")
    cases = [case for case in read_manifest(folder) if case["format"] not in AWAITED] if folder else []
    marks = {name: pytest.mark.xfail(reason=why, strict=True) for name, why in DEPARTURES.items()}
    parameters = [pytest.param(case, id=case["id"], marks=marks.get(case["id"], ())) for case in cases]
    metafunc.parametrize("case", parameters)


def read_manifest(folder: Path) -> list[dict[str, str]]:
    with tarfile.open(folder / "hostile.tar.gz") as archive:
        member = next(name for name in archive.getnames() if name.endswith("manifest.json"))
        file = archive.extractfile(member)
        assert file is not None
        return json.load(file)["cases"]


@pytest.fixture(scope="module")
def hostile(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The unpacked corpus. It is the project's own, so its links out of the folder are wanted."""
    folder = tmp_path_factory.mktemp("corpus")
    with tarfile.open(data / "hostile.tar.gz") as archive:
        archive.extractall(folder, filter="fully_trusted")
    return folder / "hostile"


@pytest.fixture
def ten_seconds() -> Iterator[None]:
    """A reader that waits on a FIFO, or reads a device to its end, is stopped."""

    def stop(*_: object) -> None:
        raise TimeoutError("still reading after ten seconds")

    signal.signal(signal.SIGALRM, stop)
    signal.alarm(10)
    yield
    signal.alarm(0)


@pytest.mark.usefixtures("ten_seconds")
def test_the_verdict(
    hostile: Path, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: dict[str, str]
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = cli("inspect", hostile / case["path"])
    if code == 0 and case["expect"] == "must_refuse":
        code, out, err = cli("convert", hostile / case["path"], "out", "--to", "safetensors")
    expected = {"must_refuse": 3, "must_open": 0}[case["expect"]]
    assert code == expected, f"{case['why']}\n{out}{err}"
    assert list(tmp_path.iterdir()) == [], "code in the file ran: it leaves a file named CANARY"
