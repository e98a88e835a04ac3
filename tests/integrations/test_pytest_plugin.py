"""The fixtures that training code's own tests use; found by pytest because remap is installed."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from remap.errors import AuditFailed

TESTS = """
import sys

def test_nothing_heavy_comes_with_pytest():
    assert not {"torch", "transformers", "deepspeed", "remap.api"} & set(sys.modules)

def test_fits(audit_load):
    assert audit_load("model.json", "fits.json").coverage.of_keys == 1
    assert "torch" not in sys.modules

def test_does_not_fit(audit_load):
    audit_load("model.json", "lacks.json")
"""


def test_it_is_found_and_fails_a_test_with_the_report(tmp_path: Path) -> None:
    wanted = {"a.weight": [[2], "float32"], "b.weight": [[2], "float32"]}
    (tmp_path / "model.json").write_text(json.dumps(wanted))
    (tmp_path / "fits.json").write_text(json.dumps(wanted))
    (tmp_path / "lacks.json").write_text(json.dumps({"a.weight": [[2], "float32"]}))
    (tmp_path / "test_it.py").write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_it.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert "1 failed, 2 passed" in done.stdout, done.stdout + done.stderr
    assert "FAILED test_it.py::test_does_not_fit" in done.stdout
    assert "missing-parameter (RM101), 1" in done.stdout
    assert "Traceback" not in done.stdout


def test_a_model_is_audited_and_left_alone(audit_load: Any, pythia: Callable[[str], Path]) -> None:
    pytest.importorskip("transformers")
    from integrations.magma_model import build, departures, state

    model = build()
    before = state(model)
    report = audit_load(model, pythia("fp32"), ["magma/from-hf"], policy="magma")
    assert report.counts["renamed"] == 52
    assert departures(model, before) == []
    with pytest.raises(pytest.fail.Exception, match="missing-adapter"):
        audit_load(model, pythia("fp32"), ["magma/from-hf"])


def test_loads_are_watched(watch_loads: Any) -> None:
    torch = pytest.importorskip("torch")
    with pytest.raises(AuditFailed, match="bias"), watch_loads():
        torch.nn.Linear(2, 3).load_state_dict({"weight": torch.ones(3, 2)}, strict=False)
