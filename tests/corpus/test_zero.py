"""Every ZeRO checkpoint of the corpus: fp32 weights as the live engine gathered them.

``zero/<case>`` is a run that real DeepSpeed saved, with ``reference.pt`` beside its step folder: the weights
in fp32, frozen ones and buffers among them.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import remap


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    folder = metafunc.config.getoption("--data")
    metafunc.parametrize("case", sorted(p.parent for p in (folder / "zero").glob("*/reference.pt")), ids=str)


def test_weights_are_those_of_the_live_engine(case: Path) -> None:
    truth = torch.load(case / "reference.pt", weights_only=True)
    (step,) = (p for p in case.iterdir() if p.is_dir())
    shards = any(step.glob("*optim_states.pt"))
    found = remap.open(step, at="zero" if shards else None)
    lost = {k for k in truth if k.startswith("frozen.")} if case.name == "zero2_nofrozen" else set()
    assert truth.keys() - found.keys() == lost
    assert [k for k in found if not found[k].float().equal(truth[k])] == []
