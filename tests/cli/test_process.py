"""The command as a process: pipes, signals, encodings."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import pytest
import torch
from safetensors.torch import save_file

REMAP = (sys.executable, "-m", "remap")


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    """A checkpoint of 8000 tensors of 40 kB: there is time to stop what converts it."""
    path = tmp_path_factory.mktemp("many") / "many.safetensors"
    save_file({f"layers.{i}.weight": torch.zeros(10_000) for i in range(8000)}, path)
    return path


def test_a_reader_that_goes_away_ends_it_quietly(many):
    pipe = subprocess.Popen([*REMAP, "plan", many, "--all"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    pipe.stdout.readline()
    pipe.stdout.close()
    assert pipe.wait(30) == -signal.SIGPIPE
    assert pipe.stderr.read() == b""
    pipe.stderr.close()


def _heed_signals():
    """In a shell's background SIGINT is ignored, under nohup SIGHUP, and so it is by what they start."""
    for name in (signal.SIGINT, signal.SIGHUP):
        signal.signal(name, signal.SIG_DFL)


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_a_signal_stops_it_and_leaves_nothing(many, tmp_path, name):
    command = [*REMAP, "convert", many, tmp_path / "out.safetensors", "--dtype", "f16", "--jobs", "1"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, preexec_fn=_heed_signals)
    while process.poll() is None and not any(tmp_path.rglob("*.part")):
        time.sleep(0.001)
    process.send_signal(getattr(signal, name))
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert err.strip() == "stopped; the destination is as it was"
    assert list(tmp_path.iterdir()) == []


def test_a_killed_run_leaves_nothing_that_opens(many, tmp_path):
    command = [*REMAP, "convert", many, tmp_path / "out.safetensors", "--dtype", "f16", "--jobs", "1"]
    process = subprocess.Popen(command)
    while process.poll() is None and not any(tmp_path.rglob("*.part")):
        time.sleep(0.001)
    process.kill()
    process.wait()
    (left,) = tmp_path.iterdir()
    assert [p.suffix for p in left.glob("files-*/*")] == [".part"]
    subprocess.run([*REMAP, "convert", many, tmp_path / "out.safetensors"], check=True, capture_output=True)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out.safetensors", "out.safetensors.receipt.json"]


def test_what_the_terminal_cannot_show_is_escaped(tmp_path):
    save_file({"größe": torch.ones(1)}, tmp_path / "x.safetensors")
    done = subprocess.run(
        [*REMAP, "inspect", tmp_path / "x.safetensors", "--tree"],
        capture_output=True,
        env=os.environ | {"PYTHONIOENCODING": "ascii"},
    )
    assert done.returncode == 0
    assert b"gr\\xf6\\xdfe" in done.stdout


def test_json_holds_what_utf8_cannot(tmp_path):
    torch.save({"a\ud800": torch.ones(1)}, tmp_path / "x.pt")
    done = subprocess.run([*REMAP, "inspect", tmp_path / "x.pt", "--json"], capture_output=True)
    assert list(json.loads(done.stdout)["tensors"]) == ["a\ud800"]


def test_a_full_output_is_an_error_in_words():
    with open("/dev/full", "w") as full:
        done = subprocess.run([*REMAP, "rules", "list"], stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert "Traceback" not in done.stderr
