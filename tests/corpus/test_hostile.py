"""Hostile, damaged and odd files: each is refused or opened as the corpus says, quickly, and none runs code.

A refusal is exit code 3, 2 where the fault is a pack's or the destination's: a message, not a traceback. It
comes from ``inspect``, or, where only the weights are wrong, from ``convert``, which leaves nothing behind.
Packs of the corpus are in another language; ``trust.hostile.packs`` has each in ours.
"""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest
from trust.hostile import packs
from trust.hostile.measured import check, remap

DEPARTURES = {
    "s32_valid_empty": "a checkpoint without tensors is never a success",
}
"""Cases that remap judges otherwise than the corpus, and why."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "case" not in metafunc.fixturenames:
        return
    folder = metafunc.config.getoption("--data")
    cases = [c for c in read_manifest(folder) if c["format"] not in ("rules", "output")] if folder else []
    if "zero_files" in metafunc.function.__name__:
        cases = [c for c in cases if c["format"] == "deepspeed" and c["expect"] == "must_refuse"]
    marks = {name: pytest.mark.xfail(reason=why, strict=True) for name, why in DEPARTURES.items()}
    metafunc.parametrize("case", [pytest.param(c, id=c["id"], marks=marks.get(c["id"], ())) for c in cases])


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


def test_the_verdict(hostile: Path, tmp_path: Path, case: dict[str, str]) -> None:
    outcome = remap("inspect", hostile / case["path"], cwd=tmp_path)
    if outcome.code == 0 and case["expect"] == "must_refuse":
        outcome = remap("convert", hostile / case["path"], "out", "--to", "safetensors", cwd=tmp_path)
    check(outcome, {"must_refuse": 3, "must_open": 0}[case["expect"]])
    assert list(tmp_path.iterdir()) == [], "code in the file ran: it leaves a file named CANARY"


def test_the_verdict_on_the_weights_in_zero_files(
    hostile: Path, tmp_path: Path, case: dict[str, str]
) -> None:
    check(remap("plan", hostile / case["path"], "--weights", "zero", cwd=tmp_path), 3)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "name", ["o01_symlink_out/out.pt", "o02_output_is_input/in2.pt", "o04_existing_output/out.pt"]
)
def test_an_output_replaces_nothing(hostile: Path, tmp_path: Path, name: str) -> None:
    output = hostile / "output" / name
    before = {p: p.read_bytes() for p in output.parent.iterdir()}
    check(remap("convert", output.parent / "in.pt", output, cwd=tmp_path), 2)
    assert {p: p.read_bytes() for p in output.parent.iterdir()} == before


def test_every_pack_is_translated(data: Path) -> None:
    cases = {c["id"]: c["expect"] for c in read_manifest(data) if c["format"] == "rules"}
    assert {n for n, e in cases.items() if e == "must_refuse"} <= packs.REFUSED.keys()
    assert {n for n, e in cases.items() if e == "must_open"} <= packs.OPENED.keys()


def test_every_kind_is_put_to_the_test(data: Path) -> None:
    assert len(read_manifest(data)) == 171
